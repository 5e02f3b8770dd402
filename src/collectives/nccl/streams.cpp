#include "collectives/nccl/streams.h"

#include "base/error.h"
#include "device/cuda/stream.h"

namespace temper::collectives {
namespace {

cudaStream_t new_stream() {
  cudaStream_t stream = nullptr;
  // First where multiprocessors become free: other ranks wait for what goes there.
  int lowest = 0, highest = 0;
  check_cuda(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "cudaDeviceGetStreamPriorityRange");
  check_cuda(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, highest), "cudaStreamCreate");
  return stream;
}

// One for all groups of the GPU that do not go apart, so that what one gives to it comes before what another
// gives to it later.
cudaStream_t common_stream() {
  static cudaStream_t stream = new_stream();
  return stream;
}

}  // namespace

void check_cuda(cudaError_t error, const char* call) {
  if (error != cudaSuccess) fail_resources("[NCCL] {} failed: {}", call, cudaGetErrorString(error));
}

GroupStreams::GroupStreams(Device gpu) : gpu_(gpu) {
  device::stream(gpu);  // makes it current, or is an error where the GPU cannot be used
  overlapped_ = common_stream();
  check_cuda(cudaEventCreateWithFlags(&order_, cudaEventDisableTiming), "cudaEventCreate");
}

GroupStreams::~GroupStreams() {
  cudaEventDestroy(order_);
  if (overlapped_ != common_stream()) cudaStreamDestroy(overlapped_);
  if (of_transfers_ != nullptr) cudaStreamDestroy(of_transfers_);
}

cudaStream_t GroupStreams::for_collective() const {
  return overlaps_ ? behind_work(overlapped_) : device::stream(gpu_);
}

cudaStream_t GroupStreams::for_transfer() {
  if (of_transfers_ == nullptr) of_transfers_ = new_stream();
  return behind_work(of_transfers_);
}

cudaStream_t GroupStreams::behind_work(cudaStream_t other) const {
  check_cuda(cudaEventRecord(order_, device::stream(gpu_)), "cudaEventRecord");
  check_cuda(cudaStreamWaitEvent(other, order_, 0), "cudaStreamWaitEvent");
  return other;
}

void GroupStreams::end_overlap() {
  overlaps_ = false;
  check_cuda(cudaEventRecord(order_, overlapped_), "cudaEventRecord");
  check_cuda(cudaStreamWaitEvent(device::stream(gpu_), order_, 0), "cudaStreamWaitEvent");
}

void GroupStreams::use_own() {
  if (overlapped_ == common_stream()) overlapped_ = new_stream();
}

void GroupStreams::synchronize() const {
  for (const cudaStream_t each : {device::stream(gpu_), overlapped_, of_transfers_})
    if (each != nullptr) check_cuda(cudaStreamSynchronize(each), "cudaStreamSynchronize");
}

}  // namespace temper::collectives
