#pragma once
#include "device/cuda/stream.h"
#include "device/graph.h"

namespace temper::device {

std::unique_ptr<Graph> capture_gpu(Device gpu, const std::function<void()>& work);

// Throws CannotCapture while the stream is captured: a graph would repeat a copy of what the CPU's memory
// held then, and nothing can be waited for that does not run.
void refuse_in_capture(cudaStream_t stream, const char* what);

}  // namespace temper::device
