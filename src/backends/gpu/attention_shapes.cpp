#include "backends/gpu/attention_shapes.h"

namespace temper::backends {

ops::Refusal refuse_packed_attention(const ops::Attention::Signature& s, const HardwareFacts& facts) {
  const int capability = facts.compute_capability;
  const auto written = [&] { return fmt::format("{}.{}", capability / 10, capability % 10); };
  if (s.dtype != DType::kBF16) return "dtype must be bfloat16";
  if (s.sinks) return ops::refuse_sinks(s.sinks);
  if (!s.causal) return ops::refuse_all_keys(s.causal);
  if (capability < 90)
    return fmt::format("packed documents need compute capability 9.0 or later, this is {}", written());
  if (capability >= 120)
    return fmt::format("backward has no fixed order of sums at compute capability {}", written());
  // Backward takes wider heads on 9.x alone.
  const int64_t most = capability < 100 ? 256 : 128;
  if (s.head_dim < 8 || s.head_dim % 8 != 0 || s.head_dim > most)
    return fmt::format("head_dim must be a multiple of 8 up to {}, is {}", most, s.head_dim);
  if (s.narrow_or_wide_values() && !(capability < 100 && s.head_dim == 192 && s.value_dim == 128))
    return fmt::format(
        "values must be as wide as keys, or 128 for keys of 192 at compute capability 9.x, are {} "
        "for {} at {}",
        s.value_dim, s.head_dim, written());
  if (s.kv_heads < 1 || s.heads % s.kv_heads != 0)
    return fmt::format("{} query heads are not a multiple of {} key heads", s.heads, s.kv_heads);
  return std::nullopt;
}

}  // namespace temper::backends
