#pragma once
#include <nccl.h>

#include <string>

#include "base/parts/libraries.h"

namespace temper::collectives {

// NCCL as this program uses it, opened when several ranks have GPUs.
struct Nccl {
  decltype(&ncclGetVersion) get_version;
  decltype(&ncclGetUniqueId) get_unique_id;
  decltype(&ncclCommInitRank) comm_init_rank;
  decltype(&ncclCommDestroy) comm_destroy;
  decltype(&ncclCommAbort) comm_abort;
  decltype(&ncclCommGetAsyncError) comm_get_async_error;
  decltype(&ncclGetErrorString) get_error_string;
  decltype(&ncclGetLastError) get_last_error;
  decltype(&ncclGroupStart) group_start;
  decltype(&ncclGroupEnd) group_end;
  decltype(&ncclAllReduce) all_reduce;
  decltype(&ncclAllGather) all_gather;
  decltype(&ncclReduceScatter) reduce_scatter;
  decltype(&ncclBroadcast) broadcast;
  decltype(&ncclSend) send;
  decltype(&ncclRecv) receive;
};

// Opens it once. A kResources Error where it is missing, or of another major version than this program was
// built with.
const Nccl& nccl();
LibraryState probe_nccl();

// Throws a kResources Error that names the call.
void check(ncclResult_t result, const char* call);

}  // namespace temper::collectives
