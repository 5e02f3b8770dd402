#pragma once
#include "device/device.h"
#include "device/moments.h"

namespace temper::device {

// On the calling thread's stream of a GPU.
std::shared_ptr<const Moment> mark_gpu(Device gpu);

}  // namespace temper::device
