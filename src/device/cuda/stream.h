#pragma once
#include "device/cuda/driver.h"
#include "device/device.h"

namespace temper::device {

inline constexpr int kMaxGpus = 8;  // of one machine that are told apart
int num_gpus();                     // visible ones; throws as driver() does
// Refuses a GPU that kernels are not written for.
void require_supported(int index);

// The stream on which a GPU does all of Temper's work, in the order in which it was asked for; memory of the
// pool may therefore be reused as soon as its last user has been launched. Makes the GPU current for the
// calling thread; the first call refuses GPUs that kernels are not written for.
cudaStream_t stream(Device device);

int multiprocessors(Device device);

// After a launch: what was wrong with it, as an error that names the kernel.
void check_launch(const char* kernel);

}  // namespace temper::device
