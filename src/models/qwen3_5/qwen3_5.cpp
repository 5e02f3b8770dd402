// Qwen3.5's text: layers as Qwen3-Next has them, whose files hold the projections of the delta rule one by
// one; dense, or with experts in every layer.
#include "models/delta_hybrid.h"
#include "models/model.h"

namespace temper::models {
namespace {

constexpr ops::RotarySections kSections{{11, 11, 10}, true};

layers::DecoderConfig configure_dense(ConfigReader& reader) {
  DenseConfig defaults;
  defaults.num_kv_heads = 4;
  defaults.rope_sections = kSections;
  return decoder_of(read_delta_hybrid(reader, defaults, false));
}

layers::DecoderConfig configure_mixture(ConfigReader& reader) {
  DenseConfig defaults;
  defaults.num_kv_heads = 2;
  defaults.rope_sections = kSections;
  defaults.intermediate_size = 1;  // no layer has it
  const DeltaHybrid hybrid = read_delta_hybrid(reader, defaults, false);
  const auto channel = read_shared_mixture(reader, hybrid.dense.hidden_size, true);
  layers::DecoderConfig decoder = decoder_of(hybrid, [&](int64_t) { return channel; });
  decoder.balance_factor = read_balance_factor(reader);
  return decoder;
}

}  // namespace

void register_qwen3_5() {
  registry<Family>().add("qwen3_5_text", {configure_dense});
  registry<Family>().add("qwen3_5", {.text = TextPart{"qwen3_5_text"}});
  registry<Family>().add("qwen3_5_moe", {.text = TextPart{"qwen3_5_moe_text"}});
  registry<Family>().add("qwen3_5_moe_text", {configure_mixture});
}

}  // namespace temper::models
