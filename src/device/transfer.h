#pragma once
#include <cstdint>

#include "device/device.h"

namespace temper {

// Copies bytes between or within devices and returns when they have arrived.
void transfer(void* to, Device to_device, const void* from, Device from_device, int64_t bytes);

// How a type of device copies: between itself and the CPU, and within itself.
using Transfer = void (*)(void* to, Device to_device, const void* from, Device from_device, int64_t bytes);
void register_transfer(DeviceType type, Transfer function);

}  // namespace temper
