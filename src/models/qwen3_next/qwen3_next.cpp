// Qwen3-Next: layers of the gated delta rule, every fourth of attention, routed experts and one shared
// expert.
#include <algorithm>

#include "models/delta_hybrid.h"
#include "models/model.h"

namespace temper::models {
namespace {

layers::DecoderConfig configure_qwen3_next(ConfigReader& reader) {
  DenseConfig defaults;
  defaults.num_kv_heads = 2;
  const DeltaHybrid hybrid = read_delta_hybrid(reader, defaults, true);
  const std::vector<bool> mixed = read_mixed_layers(reader, hybrid.dense.num_layers);
  if (std::none_of(mixed.begin(), mixed.end(), [](bool each) { return each; }) ||
      reader.integer("num_experts", 512) == 0)
    return decoder_of(hybrid);
  const auto channel =
      read_shared_mixture(reader, hybrid.dense.hidden_size, reader.boolean("norm_topk_prob", true));
  layers::DecoderConfig decoder = decoder_of(
      hybrid, [&](int64_t layer) { return mixed[static_cast<size_t>(layer)] ? channel : nullptr; });
  decoder.balance_factor = read_balance_factor(reader);
  return decoder;
}

}  // namespace

void register_qwen3_next() { registry<Family>().add("qwen3_next", {configure_qwen3_next}); }

}  // namespace temper::models
