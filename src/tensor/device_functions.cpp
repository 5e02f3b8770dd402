#include "tensor/device_functions.h"

#include <map>

#include "base/error.h"

namespace temper {
namespace {

std::map<DeviceType, TensorFunctions>& all_functions() {
  static std::map<DeviceType, TensorFunctions> instance;
  return instance;
}

}  // namespace

void register_tensor_functions(DeviceType type, TensorFunctions functions) {
  all_functions()[type] = functions;
}

const TensorFunctions& tensor_functions(Device device) {
  const auto found = all_functions().find(device.type);
  if (found == all_functions().end()) fail("this build has no kernels for {}", to_string(device));
  return found->second;
}

}  // namespace temper
