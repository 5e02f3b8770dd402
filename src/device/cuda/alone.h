#pragma once
#include "device/cuda/stream.h"

namespace temper::device {

// Around the launch of a kernel whose blocks wait for each other without a cooperative launch. Two such
// kernels at once could each hold multiprocessors that the other waits for: on different streams of a GPU
// they run one after the other. Costs nothing while the GPU has one stream. While a graph is captured it does
// nothing: the graph's launches are such work themselves.
class AloneScope {
 public:
  explicit AloneScope(Device gpu);
  ~AloneScope();
  AloneScope(const AloneScope&) = delete;
  AloneScope& operator=(const AloneScope&) = delete;

 private:
  const int gpu_;
  const cudaStream_t order_;
  bool orders_ = false;
};

}  // namespace temper::device
