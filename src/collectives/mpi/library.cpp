#include "collectives/mpi/library.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <string>

#include "base/error.h"
#include "collectives/mpi/mpi.h"

namespace temper::collectives {
namespace {

constexpr const char* kFile = "libmpi.so.40";  // of Open MPI 4 and 5

template <class F>
void find(void* library, const char* name, F& function) {
  function = reinterpret_cast<F>(dlsym(library, name));
  if (function == nullptr)
    fail_resources("[MPI] {} has no {}; install Open MPI {} (Debian: openmpi-bin, libopenmpi3)", kFile, name,
                   OMPI_MAJOR_VERSION);
}

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
  // Its own parts look up its symbols: they must be seen by all.
  void* const library = dlopen(kFile, RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr)
    fail_resources(
        "[MPI] several ranks need Open MPI, which cannot be opened ({}); install it (Debian: openmpi-bin, "
        "libopenmpi3), or run one rank",
        dlerror());
  Mpi mpi{};
  find(library, "MPI_Get_library_version", mpi.get_library_version);
  static const std::string version = version_of(mpi);
  mpi.version = version.c_str();
  const std::string expected = fmt::format("Open MPI {}.", OMPI_MAJOR_VERSION);
  if (!version.starts_with(expected))
    fail_resources("[MPI] {} is {}, expected {}x, with which this program was built", kFile, version,
                   expected);
  find(library, "MPI_Init_thread", mpi.init_thread);
  find(library, "MPI_Comm_rank", mpi.comm_rank);
  find(library, "MPI_Comm_size", mpi.comm_size);
  find(library, "MPI_Comm_dup", mpi.comm_dup);
  find(library, "MPI_Isend", mpi.isend);
  find(library, "MPI_Irecv", mpi.irecv);
  find(library, "MPI_Recv", mpi.recv);
  find(library, "MPI_Test", mpi.test);
  find(library, "MPI_Iprobe", mpi.iprobe);
  find(library, "MPI_Finalize", mpi.finalize);
  find(library, "ompi_mpi_comm_world", mpi.world);
  find(library, "ompi_mpi_byte", mpi.byte);
  return mpi;
}

}  // namespace

const Mpi& mpi() {
  static const Mpi opened = open();
  return opened;
}

LibraryState probe_mpi() {
  try {
    return {true, mpi().version};
  } catch (const Error& error) {
    return {false, error.what()};
  }
}

}  // namespace temper::collectives
