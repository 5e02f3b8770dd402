#include "collectives/mpi/library.h"

#include <algorithm>
#include <array>
#include <string>

#include "base/error.h"
#include "base/parts/dynamic_library.h"
#include "collectives/mpi/mpi.h"

namespace temper::collectives {
namespace {

constexpr const char* kFile = "libmpi.so.40";  // of Open MPI 4 and 5

// "Open MPI v4.1.4, package: Debian ..." to "Open MPI 4.1.4".
std::string version_of(const Mpi& mpi) {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  mpi.get_library_version(text.data(), &length);
  std::string version(text.data(), static_cast<size_t>(length));
  version.resize(std::min(version.find(','), version.size()));
  if (const size_t v = version.find(" v"); v != std::string::npos) version.erase(v + 1, 1);
  return version;
}

Mpi open() {
  static const DynamicLibrary library({kFile}, {}, DynamicLibrary::Symbols::kSeenByAll);
  if (!library.opened())
    fail_resources(
        "[MPI] several ranks need Open MPI, which cannot be opened ({}); install it (Debian: openmpi-bin, "
        "libopenmpi3), or run one rank",
        library.error());
  Mpi mpi{};
  library.look_up("MPI_Get_library_version", mpi.get_library_version);
  static const std::string version = version_of(mpi);
  mpi.version = version.c_str();
  const std::string expected = fmt::format("Open MPI {}.", OMPI_MAJOR_VERSION);
  if (!version.starts_with(expected))
    fail_resources("[MPI] {} is {}, expected {}x, with which this program was built", kFile, version,
                   expected);
  library.look_up("MPI_Init_thread", mpi.init_thread);
  library.look_up("MPI_Comm_rank", mpi.comm_rank);
  library.look_up("MPI_Comm_size", mpi.comm_size);
  library.look_up("MPI_Comm_dup", mpi.comm_dup);
  library.look_up("MPI_Isend", mpi.isend);
  library.look_up("MPI_Irecv", mpi.irecv);
  library.look_up("MPI_Recv", mpi.recv);
  library.look_up("MPI_Test", mpi.test);
  library.look_up("MPI_Cancel", mpi.cancel);
  library.look_up("MPI_Iprobe", mpi.iprobe);
  library.look_up("MPI_Finalize", mpi.finalize);
  library.look_up("ompi_mpi_comm_world", mpi.world);
  library.look_up("ompi_mpi_byte", mpi.byte);
  return mpi;
}

}  // namespace

const Mpi& mpi() {
  static const Mpi opened = open();
  return opened;
}

LibraryState probe_mpi() {
  return probe_library([] { return mpi().version; });
}

}  // namespace temper::collectives
