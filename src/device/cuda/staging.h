#pragma once
#include "device/cuda/stream.h"
#include "device/transfer.h"

namespace temper::device {

// Copies between the CPU's pageable memory and a GPU through pinned pieces: the caller never waits for the
// GPU's work when copying there, and always when copying back.
void copy_to_gpu(void* to, const void* from, int64_t bytes, Device gpu);
void copy_from_gpu(void* to, const void* from, int64_t bytes, Device gpu);

// From one GPU to another, after what both were asked for before; later work of both waits for the copy. The
// host waits for nothing.
void copy_between_gpus(void* to, Device to_gpu, const void* from, Device from_gpu, int64_t bytes);

std::shared_ptr<Reading> start_reading_gpu(const void* from, Device gpu, int64_t bytes);

}  // namespace temper::device
