#include "primitives/device_functions.h"

#include <map>

#include "base/error.h"
#include "primitives/cpu.h"

namespace temper::primitives {
namespace {

std::map<DeviceType, PrimitiveFunctions>& all_functions() {
  static std::map<DeviceType, PrimitiveFunctions> instance{
      {DeviceType::kCpu,
       {cpu::unary, cpu::unary_gradient, cpu::binary, cpu::binary_gradient, cpu::matmul, cpu::sum_last,
        cpu::max_last, cpu::spread_last, cpu::sum_listed_rows, cpu::take_last, cpu::take_last_gradient,
        cpu::dequantize, cpu::dequantize_nf4, cpu::grow_amax, cpu::add_counts, cpu::move_biases}}};
  return instance;
}

}  // namespace

void register_primitive_functions(DeviceType type, PrimitiveFunctions functions) {
  all_functions()[type] = functions;
}

const PrimitiveFunctions& primitive_functions(Device device) {
  const auto found = all_functions().find(device.type);
  if (found == all_functions().end()) fail("this build has no primitives for {}", to_string(device));
  return found->second;
}

}  // namespace temper::primitives
