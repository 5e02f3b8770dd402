#include "layers/decoder.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/error.h"
#include "layers/glue.h"
#include "ops/attention/attention.h"
#include "ops/embedding/embedding.h"
#include "ops/linear/linear.h"
#include "ops/rms_norm/rms_norm.h"
#include "ops/rotary/rotary.h"
#include "ops/swiglu/swiglu.h"

namespace temper::layers {

// What every layer of one forward pass reads.
struct Decoder::Context {
  const DecoderInput& input;
  const RopeTables& rope;
  KvCache* cache;
  Tensor cu_seqlens_k, host_cu_seqlens_k;
};

DecoderInput make_input(std::span<const int32_t> ids, std::span<const int32_t> document_lengths) {
  std::vector<int32_t> positions, starts{0};
  for (const int32_t length : document_lengths) {
    for (int32_t i = 0; i < length; ++i) positions.push_back(i);
    starts.push_back(starts.back() + length);
  }
  if (positions.size() != ids.size())
    fail("documents of {} tokens in all, but {} token ids", positions.size(), ids.size());
  const Tensor cu_seqlens = Tensor::from(starts);
  return {Tensor::from(ids, {static_cast<int64_t>(ids.size())}), Tensor::from(positions), cu_seqlens,
          cu_seqlens};
}

Decoder::Decoder(DecoderConfig config, DType dtype, ops::BoundOps ops)
    : config_(std::move(config)), parameters_(decoder_weight_table(config_), dtype), ops_(std::move(ops)) {}

const RopeTables& Decoder::rope_tables(int64_t positions) const {
  if (positions > config_.max_positions)
    fail("{} positions are asked for; the model's max_position_embeddings is {}", positions,
         config_.max_positions);
  if (!rope_.cos.defined() || rope_.cos.dim(0) < positions) {
    const auto grown =
        static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(positions, 256))));
    rope_ = make_rope_tables(config_.rope, config_.head_dim, std::min(grown, config_.max_positions));
  }
  return rope_;
}

Var Decoder::norm(Tape& tape, const std::string& name, const Var& x) const {
  return ops::rms_norm(tape, ops_.at(name), x, tape.leaf(parameters_.at(name + ".weight")),
                       static_cast<float>(config_.rms_norm_eps));
}

Var Decoder::project(Tape& tape, const std::string& name, const Var& x, bool bias) const {
  const Var weight = tape.leaf(parameters_.at(name + ".weight"));
  return ops::linear(tape, ops_.at(name), x, weight,
                     bias ? tape.leaf(parameters_.at(name + ".bias")) : Var{});
}

Var Decoder::attention(Tape& tape, int64_t index, const Var& x, const Context& context) const {
  const std::string name = fmt::format("layers.{}.attention", index);
  const Var qkv = project(tape, name + ".qkv", x, config_.qkv_bias);
  auto [q, k, v] = split_heads(tape, qkv, config_.num_heads, config_.num_kv_heads, config_.head_dim);
  if (config_.qk_norm) {
    q = norm(tape, name + ".q_norm", q);
    k = norm(tape, name + ".k_norm", k);
  }
  const ops::BoundOps& ops = ops_.at(name);
  q = ops::rotary(tape, ops, q, context.input.positions, context.rope.cos, context.rope.sin);
  k = ops::rotary(tape, ops, k, context.input.positions, context.rope.cos, context.rope.sin);
  if (context.cache != nullptr) {
    auto [keys, values] = context.cache->append(index, k.value, v.value);
    k = tape.constant(keys);
    v = tape.constant(values);
  }
  ops::Attention op;
  op.cu_seqlens_q = context.input.cu_seqlens;
  op.cu_seqlens_k = context.cu_seqlens_k;
  op.host_cu_seqlens_q = context.input.host_cu_seqlens;
  op.host_cu_seqlens_k = context.host_cu_seqlens_k;
  op.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(config_.head_dim)));
  op.window = config_.windows[static_cast<size_t>(index)];
  const Var y = merge_heads(tape, ops::attention(tape, ops, q, k, v, op));
  return project(tape, name + ".output", y, config_.output_bias);
}

Var Decoder::mlp(Tape& tape, int64_t index, const Var& x) const {
  const std::string name = fmt::format("layers.{}.mlp", index);
  const Var gate_up = project(tape, name + ".gate_up", x, config_.mlp_bias);
  return project(tape, name + ".down", ops::swiglu(tape, ops_.at(name), gate_up), config_.mlp_bias);
}

Var Decoder::layer_forward(Tape& tape, int64_t index, const Var& x, const Context& context) const {
  const std::string name = fmt::format("layers.{}.", index);
  const Var mixed =
      residual_add(tape, x, attention(tape, index, norm(tape, name + "input_norm", x), context));
  return residual_add(tape, mixed, mlp(tape, index, norm(tape, name + "post_attention_norm", mixed)));
}

Var Decoder::forward(Tape& tape, const DecoderInput& input, const Options& options) const {
  if (input.ids.numel() == 0) fail("a forward pass needs at least one token");
  invariant(options.cache == nullptr || !tape.recording(), "a KV cache is for inference");
  const auto positions = input.positions.values<int32_t>();
  const int64_t furthest = *std::max_element(positions.begin(), positions.end());
  Context context{input, rope_tables(furthest + 1), options.cache, input.cu_seqlens, input.host_cu_seqlens};
  if (options.cache != nullptr) {
    invariant(input.cu_seqlens.numel() == 2, "a KV cache continues one document");
    const auto end = static_cast<int32_t>(options.cache->length() + input.ids.numel());
    context.cu_seqlens_k = context.host_cu_seqlens_k = Tensor::from(std::vector<int32_t>{0, end});
  }
  const auto observe = [&](const Var& x) {
    if (options.hidden_states != nullptr) options.hidden_states->push_back(x.value);
  };
  Var x =
      ops::embedding(tape, ops_.at("embedding"), input.ids, tape.leaf(parameters_.at("embedding.weight")));
  for (int64_t i = 0; i < config_.num_layers; ++i) {
    observe(x);
    if (options.checkpoint_layers && tape.recording()) {
      // Backward runs this again after `input` and `context` are gone: it keeps its own copies of the
      // handles.
      x = tape.checkpoint(x, [this, i, input, rope = context.rope](Tape& inner, const Var& start) {
        return layer_forward(inner, i, start,
                             Context{input, rope, nullptr, input.cu_seqlens, input.host_cu_seqlens});
      });
    } else {
      x = layer_forward(tape, i, x, context);
    }
  }
  if (options.cache != nullptr) options.cache->advance(input.ids.numel());
  x = norm(tape, "norm", x);
  observe(x);
  return x;
}

Var Decoder::logits(Tape& tape, const Var& hidden) const {
  return ops::linear(tape, ops_.at("head"), hidden,
                     tape.leaf(parameters_.at(config_.tied_head ? "embedding.weight" : "head.weight")));
}

ops::CrossEntropy::Vars Decoder::loss(Tape& tape, const Var& hidden, const Tensor& targets,
                                      float scale) const {
  const Var head = tape.leaf(parameters_.at(config_.tied_head ? "embedding.weight" : "head.weight"));
  return ops::cross_entropy(tape, ops_.at("head"), hidden, head, targets, scale);
}

}  // namespace temper::layers
