#pragma once
#include "device/sharing.h"

// Memory of a GPU's pool that another process maps (device/sharing.h): chunks of physical memory travel as
// file descriptors.
namespace temper::device {

SharingFunctions cuda_sharing();

// checksum.cu: checksum_of() of memory on a GPU.
uint64_t gpu_checksum(Device gpu, const void* memory, int64_t bytes);

}  // namespace temper::device
