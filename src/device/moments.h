#pragma once
#include <memory>

#include "device/device.h"

namespace temper {

// A moment in the order of a device's work: when it has done all that was asked of it before.
class Moment {
 public:
  virtual ~Moment() = default;
  // Of one that was marked before on the same device; waits until the device has come to this one.
  virtual double seconds_since(const Moment& earlier) const = 0;
};
std::shared_ptr<const Moment> mark(Device device);

// For a type of device whose work is not done when a call returns.
using MarkMoment = std::shared_ptr<const Moment>(Device device);
void register_moments(DeviceType type, MarkMoment* mark);

}  // namespace temper
