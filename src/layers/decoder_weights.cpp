#include "base/error.h"
#include "layers/decoder.h"

namespace temper::layers {
namespace {

struct Builder {
  const DecoderConfig& config;
  WeightTable table;

  void vector(const std::string& name, const std::string& axis, std::vector<WeightSource> sources) {
    int64_t rows = 0;
    for (const WeightSource& source : sources) rows += source.rows;
    table.add({.name = name, .shape = {rows}, .axes = {axis}, .sources = std::move(sources), .decay = false});
  }

  // A linear layer's weight [out, in] and, where the family has it, its bias [out].
  void linear(const std::string& name, const std::string& out, const std::string& in, int64_t width,
              Split split, bool bias, const std::vector<WeightSource>& modules) {
    int64_t rows = 0;
    std::vector<WeightSource> weights, biases;
    for (const WeightSource& module : modules) {
      rows += module.rows;
      weights.push_back({module.name + ".weight", module.rows});
      biases.push_back({module.name + ".bias", module.rows});
    }
    table.add({.name = name + ".weight",
               .shape = {rows, width},
               .axes = {out, in},
               .sources = weights,
               .split = split,
               .lora = LoraRole::kLinear,
               .quantize = true});
    if (bias) vector(name + ".bias", out, biases);
  }

  void layer(int64_t index) {
    const std::string from = fmt::format("model.layers.{}.", index), to = fmt::format("layers.{}.", index);
    const int64_t hidden = config.hidden_size, q = config.num_heads * config.head_dim,
                  kv = config.num_kv_heads * config.head_dim, inner = config.intermediate_size;
    vector(to + "input_norm.weight", "hidden", {{from + "input_layernorm.weight", hidden}});
    const std::string attention = from + "self_attn.";
    linear(to + "attention.qkv", "heads*head_dim", "hidden", hidden, Split::kColumn, config.qkv_bias,
           {{attention + "q_proj", q}, {attention + "k_proj", kv}, {attention + "v_proj", kv}});
    if (config.qk_norm) {
      vector(to + "attention.q_norm.weight", "head_dim", {{attention + "q_norm.weight", config.head_dim}});
      vector(to + "attention.k_norm.weight", "head_dim", {{attention + "k_norm.weight", config.head_dim}});
    }
    linear(to + "attention.output", "hidden", "heads*head_dim", q, Split::kRow, config.output_bias,
           {{attention + "o_proj", hidden}});
    vector(to + "post_attention_norm.weight", "hidden", {{from + "post_attention_layernorm.weight", hidden}});
    linear(to + "mlp.gate_up", "intermediate", "hidden", hidden, Split::kColumn, config.mlp_bias,
           {{from + "mlp.gate_proj", inner}, {from + "mlp.up_proj", inner}});
    linear(to + "mlp.down", "hidden", "intermediate", inner, Split::kRow, config.mlp_bias,
           {{from + "mlp.down_proj", hidden}});
  }
};

}  // namespace

WeightTable decoder_weight_table(const DecoderConfig& config) {
  Builder builder{config, {}};
  const auto of_vocabulary = [&](const std::string& name, const std::string& source, LoraRole lora) {
    return WeightSpec{.name = name,
                      .shape = {config.vocab_size, config.hidden_size},
                      .axes = {"vocab", "hidden"},
                      .sources = {{source, config.vocab_size}},
                      .split = Split::kVocab,
                      .lora = lora};
  };
  builder.table.add(of_vocabulary("embedding.weight", "model.embed_tokens.weight", LoraRole::kEmbedding));
  for (int64_t i = 0; i < config.num_layers; ++i) {
    builder.layer(i);
    // Written by old releases, computed here from the configuration.
    builder.table.ignore(fmt::format("model.layers.{}.self_attn.rotary_emb.inv_freq", i),
                         "computed from config.json");
  }
  builder.vector("norm.weight", "hidden", {{"model.norm.weight", config.hidden_size}});
  WeightSpec head = of_vocabulary("head.weight", "lm_head.weight", LoraRole::kHead);
  if (config.tied_head)
    builder.table.tie(std::move(head), "embedding.weight");
  else
    builder.table.add(std::move(head));
  return std::move(builder.table);
}

}  // namespace temper::layers
