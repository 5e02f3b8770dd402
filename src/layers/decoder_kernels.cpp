#include <algorithm>

#include "layers/decoder.h"
#include "ops/adamw/adamw.h"
#include "ops/attention/attention.h"
#include "ops/attention/decode_attention.h"
#include "ops/dropout/dropout.h"
#include "ops/embedding/embedding.h"
#include "ops/global_norm/global_norm.h"
#include "ops/linear/linear.h"
#include "ops/lora_linear/lora_linear.h"
#include "ops/rms_norm/rms_norm.h"
#include "ops/rotary/rotary.h"
#include "ops/sample/sample.h"
#include "ops/swiglu/swiglu.h"

namespace temper::layers {

ops::BoundOps bind_decoder(const DecoderConfig& c, DType dtype, const ops::OpsConfig& ops,
                           const HardwareFacts& facts, const std::string& family, const StateFormat& format) {
  using Binder = ops::Binder;
  const int64_t q = c.num_heads * c.head_dim, kv = c.num_kv_heads * c.head_dim;
  std::vector<Binder::Use<ops::RmsNorm::Signature>> norms{{"norm", {dtype, c.hidden_size}}};
  std::vector<Binder::Use<ops::Linear::Signature>> linears{
      {"head", {dtype, c.hidden_size, c.vocab_size, false}}};
  std::vector<Binder::Use<ops::Rotary::Signature>> rotaries;
  std::vector<Binder::Use<ops::Attention::Signature>> attentions;
  std::vector<Binder::Use<ops::DecodeAttention::Signature>> decoding;
  std::vector<Binder::Use<ops::Swiglu::Signature>> swiglus;
  for (int64_t i = 0; i < c.num_layers; ++i) {
    const std::string layer = fmt::format("layers.{}.", i), attention = layer + "attention",
                      mlp = layer + "mlp";
    norms.push_back({layer + "input_norm", {dtype, c.hidden_size}});
    norms.push_back({layer + "post_attention_norm", {dtype, c.hidden_size}});
    linears.push_back({attention + ".qkv", {dtype, c.hidden_size, q + 2 * kv, c.qkv_bias}});
    linears.push_back({attention + ".output", {dtype, q, c.hidden_size, c.output_bias}});
    linears.push_back({mlp + ".gate_up", {dtype, c.hidden_size, 2 * c.intermediate_size, c.mlp_bias}});
    linears.push_back({mlp + ".down", {dtype, c.intermediate_size, c.hidden_size, c.mlp_bias}});
    rotaries.push_back({attention, {dtype, c.head_dim, c.qk_norm}});
    const bool window = c.windows[static_cast<size_t>(i)] > 0;
    attentions.push_back({attention, {dtype, c.num_heads, c.num_kv_heads, c.head_dim, window}});
    decoding.push_back({attention, {dtype, c.num_heads, c.num_kv_heads, c.head_dim, window}});
    swiglus.push_back({mlp, {dtype, c.intermediate_size}});
  }
  Binder binder(ops, facts, family);
  binder.bind<ops::Embedding>({Binder::Use<ops::Embedding::Signature>{"embedding", {dtype, c.hidden_size}}});
  binder.bind<ops::RmsNorm>(norms);
  binder.bind<ops::Linear>(linears);
  // Where adapters may be added later.
  std::vector<Binder::Use<ops::LoraLinear::Signature>> adapted;
  for (const auto& [module, linear] : linears)
    adapted.push_back({module, {linear.dtype, linear.in, linear.out, linear.bias}});
  binder.bind<ops::LoraLinear>(adapted);
  binder.bind<ops::Dropout>({ops::Dropout::Signature{dtype}});
  binder.bind<ops::Rotary>(rotaries);
  binder.bind<ops::Attention>(attentions);
  binder.bind<ops::DecodeAttention>(decoding);
  binder.bind<ops::Sample>({Binder::Use<ops::Sample::Signature>{"head", {dtype, c.vocab_size}}});
  binder.bind<ops::Swiglu>(swiglus);
  binder.bind<ops::CrossEntropy>(
      {Binder::Use<ops::CrossEntropy::Signature>{"head", {dtype, c.hidden_size, c.vocab_size}}});
  binder.bind<ops::AdamW>({Binder::Use<ops::AdamW::Signature>{
      "optimizer", {dtype, format.master_weights, format.gradients, format.moments}}});
  binder.bind<ops::GlobalNorm>({Binder::Use<ops::GlobalNorm::Signature>{"optimizer", {format.gradients}}});
  return binder.finish();
}

}  // namespace temper::layers
