// What tensors and primitives do on a device that only counts: nothing. They have taken their memory before.
#include "primitives/device_functions.h"
#include "tensor/device_functions.h"

namespace temper::backends {
namespace {

// Of any of those functions: one that does nothing.
template <class... Arguments>
constexpr void nothing(Arguments...) {}

}  // namespace

void register_counted() {
  register_tensor_functions(DeviceType::kCounted,
                            {.copy = nothing, .add = nothing, .fill = nothing, .fill_normal = nothing});
  primitives::register_primitive_functions(DeviceType::kCounted, {.unary = nothing,
                                                                  .unary_gradient = nothing,
                                                                  .binary = nothing,
                                                                  .binary_gradient = nothing,
                                                                  .matmul = nothing,
                                                                  .sum_last = nothing,
                                                                  .max_last = nothing,
                                                                  .spread_last = nothing,
                                                                  .sum_listed_rows = nothing,
                                                                  .take_last = nothing,
                                                                  .take_last_gradient = nothing,
                                                                  .dequantize = nothing,
                                                                  .dequantize_nf4 = nothing,
                                                                  .grow_amax = nothing,
                                                                  .add_counts = nothing,
                                                                  .move_biases = nothing});
}

}  // namespace temper::backends
