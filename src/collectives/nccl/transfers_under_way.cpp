#include "collectives/nccl/transfers_under_way.h"

#include "collectives/nccl/streams.h"
#include "device/cuda/stream.h"

namespace temper::collectives {

GpuTransfersUnderWay::GpuTransfersUnderWay(cudaStream_t on, Device gpu, std::vector<Tensor> tensors)
    : gpu_(gpu), tensors_(std::move(tensors)) {
  check_cuda(cudaEventCreateWithFlags(&done_, cudaEventDisableTiming), "cudaEventCreate");
  check_cuda(cudaEventRecord(done_, on), "cudaEventRecord");
}

GpuTransfersUnderWay::~GpuTransfersUnderWay() {
  if (!tensors_.empty()) cudaStreamWaitEvent(device::stream(gpu_), done_, 0);  // an error ends the run later
  cudaEventDestroy(done_);
}

void GpuTransfersUnderWay::wait() {
  if (tensors_.empty()) return;
  check_cuda(cudaStreamWaitEvent(device::stream(gpu_), done_, 0), "cudaStreamWaitEvent");
  tensors_.clear();
}

}  // namespace temper::collectives
