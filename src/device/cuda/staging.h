#pragma once
#include "device/cuda/stream.h"
#include "device/transfer.h"

namespace temper::device {

// Copies between the CPU's pageable memory and a GPU through pinned pieces: the caller never waits for the
// GPU's work when copying there, and always when copying back.
void copy_to_gpu(void* to, const void* from, int64_t bytes, Device gpu);
void copy_from_gpu(void* to, const void* from, int64_t bytes, Device gpu);

std::shared_ptr<Reading> start_reading_gpu(const void* from, Device gpu, int64_t bytes);

}  // namespace temper::device
