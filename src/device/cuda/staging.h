#pragma once
#include "device/cuda/stream.h"

namespace temper::device {

// Copies between the CPU's pageable memory and a GPU through pinned pieces: the caller never waits for the
// GPU's work when copying there, and always when copying back.
void copy_to_gpu(void* to, const void* from, int64_t bytes, Device gpu);
void copy_from_gpu(void* to, const void* from, int64_t bytes, Device gpu);

}  // namespace temper::device
