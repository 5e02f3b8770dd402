#pragma once

namespace temper::training {

// Whether a GPU's step is captured in a CUDA graph, so that the host asks for it with one launch.
enum class CudaGraph {
  kAuto,  // where it can be and the step is small
  kOff,
  kOn,  // where it cannot be, that is an error
};

}  // namespace temper::training
