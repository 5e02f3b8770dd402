#include "collectives/nccl/library.h"

#include "base/parts/dynamic_library.h"

namespace temper::collectives {
namespace {

std::string version_text(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

Nccl open() {
  static const DynamicLibrary library({"libnccl.so.2"}, cuda_folders());
  if (!library.opened())
    fail_resources(
        "[NCCL] several ranks with GPUs need NCCL, which cannot be opened ({}); install it (libnccl2), or "
        "add its "
        "folder to LD_LIBRARY_PATH",
        library.error());
  Nccl found{};
  library.look_up("ncclGetVersion", found.get_version);
  library.look_up("ncclGetUniqueId", found.get_unique_id);
  library.look_up("ncclCommInitRank", found.comm_init_rank);
  library.look_up("ncclCommDestroy", found.comm_destroy);
  library.look_up("ncclCommAbort", found.comm_abort);
  library.look_up("ncclCommGetAsyncError", found.comm_get_async_error);
  library.look_up("ncclGetErrorString", found.get_error_string);
  library.look_up("ncclGetLastError", found.get_last_error);
  library.look_up("ncclGroupStart", found.group_start);
  library.look_up("ncclGroupEnd", found.group_end);
  library.look_up("ncclAllReduce", found.all_reduce);
  library.look_up("ncclAllGather", found.all_gather);
  library.look_up("ncclReduceScatter", found.reduce_scatter);
  library.look_up("ncclBroadcast", found.broadcast);
  library.look_up("ncclSend", found.send);
  library.look_up("ncclRecv", found.receive);
  int version = 0;
  found.get_version(&version);
  if (version / 10000 != NCCL_MAJOR)
    fail_resources("[NCCL] libnccl.so.2 is {}, expected {}.x, with which this program was built",
                   version_text(version), NCCL_MAJOR);
  return found;
}

}  // namespace

const Nccl& nccl() {
  static const Nccl opened = open();
  return opened;
}

LibraryState probe_nccl() {
  return probe_library([] {
    int version = 0;
    nccl().get_version(&version);
    return version_text(version);
  });
}

void check(ncclResult_t result, const char* call) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  fail_resources("[NCCL] {} failed: {} ({})", call, nccl().get_error_string(result),
                 nccl().get_last_error(nullptr));
}

}  // namespace temper::collectives
