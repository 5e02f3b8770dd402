#include "layers/forced_balance.h"

#include <fmt/format.h>

#include "tensor/host_inputs.h"

namespace temper::layers {

Tensor experts_in_turn(const ops::Routing& routing, int64_t tokens, Device device) {
  const int64_t count = tokens * routing.top_k;
  return from_host(
      fmt::format("{} of {} experts in turn for {} tokens", routing.top_k, routing.experts, tokens),
      {tokens, routing.top_k}, DType::kI32, device, [count, n = routing.experts](std::byte* to) {
        auto* const ids = reinterpret_cast<int32_t*>(to);
        for (int64_t i = 0; i < count; ++i) ids[i] = static_cast<int32_t>(i % n);
      });
}

}  // namespace temper::layers
