#pragma once
#include <cuda_runtime_api.h>

#include <vector>

#include "collectives/pairs.h"
#include "device/device.h"

namespace temper::collectives {

// What was given to a stream of transfers last. Its tensors live until the work of the GPU's own stream comes
// after it: memory that is given back there may be used again by that stream alone.
class GpuTransfersUnderWay final : public TransfersUnderWay {
 public:
  GpuTransfersUnderWay(cudaStream_t on, Device gpu, std::vector<Tensor> tensors);
  ~GpuTransfersUnderWay() override;
  GpuTransfersUnderWay(const GpuTransfersUnderWay&) = delete;
  GpuTransfersUnderWay& operator=(const GpuTransfersUnderWay&) = delete;

  void wait() override;

 private:
  const Device gpu_;
  std::vector<Tensor> tensors_;
  cudaEvent_t done_ = nullptr;
};

}  // namespace temper::collectives
