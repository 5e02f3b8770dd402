#include "mixers/attention/attention.h"

#include <algorithm>
#include <cmath>

#include "layers/glue.h"
#include "layers/linear.h"
#include "layers/norm.h"
#include "mixers/attention/kv_pages.h"
#include "ops/attention/attention.h"
#include "ops/attention/paged_attention.h"
#include "ops/rotary/rotary.h"

namespace temper::mixers {
namespace {

using layers::AdaptedRows;
using layers::Pass;

constexpr const char* kName = "attention";

ops::Rotary::Form form_of(const AttentionConfig& config) {
  return {config.interleaved, static_cast<float>(config.norm.offset), config.rope.sections};
}

class BoundAttention : public layers::BoundMixer {
 public:
  BoundAttention(const AttentionConfig& config, const layers::Binding& binding)
      : config_(config),
        scale_(static_cast<float>(config.scale != 0 ? config.scale
                                                    : 1 / std::sqrt(static_cast<double>(config.head_dim)))),
        rope_(binding.rope.add(config.rope, config.head_dim)),
        qkv_(binding, "attention.qkv", config.qkv_bias),
        output_(binding, "attention.output", config.output_bias),
        keys_(binding.activation_quantizer("attention.k_bmm_quantizer")),
        values_(binding.activation_quantizer("attention.v_bmm_quantizer")),
        rotary_(binding.kernel<ops::Rotary>(kName)),
        attention_(binding.kernel<ops::Attention>(kName)),
        paged_(binding.kernel<ops::PagedAttention>(kName)) {
    if (config.sinks) sinks_ = binding.weight("attention.sinks");
    if (!config.norm.exists) return;
    if (config.norm.all_heads) {
      for (const char* name : {"attention.q_norm", "attention.k_norm"})
        norms_.emplace_back(binding, name, config.norm.eps, config.norm.offset, binding.ranks.tensor);
      return;
    }
    q_norm_ = binding.weight("attention.q_norm.weight");
    k_norm_ = binding.weight("attention.k_norm.weight");
  }

  Var forward(Tape& tape, const Var& x, const Pass& pass) const override {
    return around(tape, x, pass, [&](const ops::RotatedHeads& heads) { return attend(tape, heads, pass); });
  }
  Var forward_batch(Tape& tape, const Var& x, const Pass& pass,
                    const layers::MixerPages& pages) const override {
    const auto& kept = static_cast<const KvPages&>(pages);
    return around(tape, x, pass, [&](const ops::RotatedHeads& heads) {
      return tape.constant(ops::paged_attention(
          paged_,
          {heads.q.value, heads.k.value, heads.v.value, kept.keys(), kept.values(), pass.batch->sequences,
           scale_, config_.window, sinks_.exists() ? sinks_.value() : Tensor()}));
    });
  }
  bool decodes_as_prompts() const override { return true; }
  bool batches_on_device() const override { return paged_->repeats; }
  std::string_view asks_host() const override {
    return attention_->repeats ? std::string_view() : ops::Attention::kName;
  }

 private:
  struct Projected {
    Var qkv, gate;  // gate [tokens, heads head_dim], or Var{}
  };
  Projected cut(Tape& tape, const Var& all) const {
    if (!config_.output_gate) return {all, {}};
    const int64_t dim = config_.head_dim, q = config_.num_heads * dim, kv = config_.num_kv_heads * dim;
    const std::vector<Var> parts = layers::split_columns(tape, all, {2 * q, 2 * kv});
    const std::vector<Var> heads = layers::ungroup_columns(tape, parts[0], config_.num_heads, {{dim}, {dim}});
    return {layers::join_columns(tape, {heads[0], parts[1]}), heads[1]};
  }

  // Of all heads together; norms of each head belong to the rotation.
  Var normed(Tape& tape, Var qkv, const Pass& pass) const {
    if (norms_.empty()) return qkv;
    const int64_t q = config_.num_heads * config_.head_dim, kv = config_.num_kv_heads * config_.head_dim;
    std::vector<Var> parts = layers::split_columns(tape, qkv, {q, kv, kv});
    for (size_t i = 0; i < norms_.size(); ++i) parts[i] = norms_[i](tape, parts[i], {}, pass.rows).y;
    return layers::join_columns(tape, parts);
  }
  ops::RotatedHeads rotate_rows(Tape& tape, const Var& qkv, const Var& q_norm, const Var& k_norm,
                                const Tensor& positions, const Pass& pass) const {
    const layers::RopeTables& rope = pass.rope[rope_];
    return ops::rotary(tape, rotary_, qkv, q_norm, k_norm,
                       {.heads = config_.num_heads,
                        .kv_heads = config_.num_kv_heads,
                        .eps = static_cast<float>(config_.norm.eps),
                        .positions = positions,
                        .cos = rope.cos,
                        .sin = rope.sin,
                        .form = form_of(config_)});
  }
  ops::RotatedHeads rotate(Tape& tape, const Var& qkv, const Pass& pass) const {
    if (pass.rows.all().empty())
      return rotate_rows(tape, qkv, q_norm_.leaf(tape), k_norm_.leaf(tape), layers::rotated_by(pass), pass);
    const layers::BoundWeight* const norms[] = {&q_norm_, &k_norm_};
    const std::vector<Var> rotated =
        pass.rows.by_pieces(tape, {qkv}, norms, [&](const AdaptedRows::Piece& piece) {
          const Var& own = piece.inputs[0];
          const Tensor all = layers::rotated_by(pass);
          const ops::RotatedHeads heads =
              rotate_rows(tape, own, piece.weights[0].value, piece.weights[1].value,
                          all.narrow(all.ndim() - 1, piece.first, own.shape()[0]), pass);
          return std::vector{heads.q, heads.k, heads.v};
        });
    return {rotated[0], rotated[1], rotated[2]};
  }

  using Quantizer = std::shared_ptr<const quantizers::BoundQuantizer>;
  // Keys or values [tokens, heads, head_dim] as a cache of few bits would keep them.
  Var rounded(Tape& tape, const Quantizer& quantizer, const Var& heads) const {
    if (!quantizer) return heads;
    return layers::split_heads(tape, (*quantizer)(tape, layers::merge_heads(tape, heads)), config_.head_dim);
  }

  // What comes before and behind attention itself, which is f.
  template <class F>
  Var around(Tape& tape, const Var& x, const Pass& pass, const F& f) const {
    auto [qkv, gate] = cut(tape, qkv_(tape, x, pass.rows));
    ops::RotatedHeads heads = rotate(tape, normed(tape, qkv, pass), pass);
    heads.k = rounded(tape, keys_, heads.k);
    heads.v = rounded(tape, values_, heads.v);
    const Var y = layers::merge_heads(tape, f(heads));
    return output_(tape, gate.value.defined() ? layers::sigmoid_gated(tape, y, gate) : y, pass.rows);
  }

  Var attend(Tape& tape, const ops::RotatedHeads& heads, const Pass& pass) const {
    const Var sinks = sinks_.leaf(tape);
    if (pass.context == nullptr) return attend(tape, heads, sinks, pass);
    const layers::ContextPass& context = *pass.context;
    const std::vector<Var> all = context.heads.own_of_heads(tape, {heads.q, heads.k, heads.v});
    const ops::RotatedHeads own{all[0], all[1], all[2]};
    const Var own_sinks = sinks_.exists()
                              ? context.heads.own_rows(tape, sinks, {{config_.num_heads, config_.num_heads}})
                              : Var{};
    return context.heads.tokens_of_heads(tape, context.documents
                                                   ? attend_to_all(tape, own, own_sinks, context)
                                                   : attend(tape, own, own_sinks, pass));
  }

  // Of all tokens.
  Var attend(Tape& tape, const ops::RotatedHeads& heads, const Var& sinks, const Pass& pass) const {
    Var k = heads.k, v = heads.v;
    if (pass.seen) {
      k = primitives::gather_rows(tape, k, *pass.seen);
      v = primitives::gather_rows(tape, v, *pass.seen);
    }
    return attend(tape, {heads.q, k, v}, sinks, pass.cu_seqlens_q, pass.cu_seqlens_k);
  }

  // The queries that are here, and the keys and values of all tokens that they see.
  Var attend_to_all(Tape& tape, const ops::RotatedHeads& heads, const Var& sinks,
                    const layers::ContextPass& context) const {
    const int64_t dim = config_.head_dim, columns = heads.k.shape()[1] * dim;
    const layers::ContextKeys& keys = context.documents->of(config_.window);
    const Var own =
        layers::join_columns(tape, {layers::merge_heads(tape, heads.k), layers::merge_heads(tape, heads.v)});
    const Var all =
        keys.fetch ? context.keys.with_fetched(tape, own, *keys.fetch) : context.keys.all_tokens(tape, own);
    const std::vector<Var> parts =
        layers::split_columns(tape, primitives::gather_rows(tape, all, keys.seen), {columns, columns});
    return attend(
        tape, {heads.q, layers::split_heads(tape, parts[0], dim), layers::split_heads(tape, parts[1], dim)},
        sinks, keys.cu_seqlens_q, keys.cu_seqlens_k);
  }

  Var attend(Tape& tape, const ops::RotatedHeads& heads, const Var& sinks, const Tensor& cu_seqlens_q,
             const Tensor& cu_seqlens_k) const {
    ops::Attention op;
    op.cu_seqlens_q = cu_seqlens_q;
    op.cu_seqlens_k = cu_seqlens_k;
    op.scale = scale_;
    op.window = config_.window;
    return ops::attention(tape, attention_, heads.q, heads.k, heads.v, op, sinks);
  }

  AttentionConfig config_;
  float scale_;
  size_t rope_;
  layers::Linear qkv_, output_;
  Quantizer keys_, values_;  // null: kept as they are
  layers::BoundWeight q_norm_, k_norm_, sinks_;
  std::vector<layers::Norm> norms_;  // of all queries and of all keys, or none
  ops::Bound<ops::Rotary> rotary_;
  ops::Bound<ops::Attention> attention_;
  ops::Bound<ops::PagedAttention> paged_;
};

class Attention : public layers::Mixer {
 public:
  explicit Attention(const AttentionConfig& config) : c_(config) {}

  void declare(layers::WeightScope& weights) const override {
    const WeightAxis heads = WeightAxis::divided("heads*head_dim", c_.head_dim);
    std::vector<WeightSource> parts{
        {"self_attn.q_proj", q_proj()}, {"self_attn.k_proj", kv()}, {"self_attn.v_proj", kv()}};
    if (c_.fused_in_files) parts = {{"self_attn.qkv_proj", q() + 2 * kv()}};
    const std::vector<WeightSegment> segments{{q_proj()}, {kv(), true}, {kv(), true}};
    weights.linear("attention.qkv", {heads, "hidden", c_.hidden, c_.qkv_bias, segments}, parts);
    if (c_.norm.exists)
      for (const auto& [norm, all] : {std::pair{"q_norm.weight", q()}, {"k_norm.weight", kv()}})
        weights.vector(std::string("attention.") + norm, c_.norm.all_heads ? heads : "head_dim",
                       {{std::string("self_attn.") + norm, c_.norm.all_heads ? all : c_.head_dim}},
                       c_.norm.offset != 0,
                       c_.norm.all_heads && std::string_view(norm).starts_with("k")
                           ? std::vector<WeightSegment>{{kv(), true}}
                           : std::vector<WeightSegment>());
    if (c_.sinks)
      weights.vector("attention.sinks", WeightAxis::divided("heads"), {{"self_attn.sinks", c_.num_heads}},
                     true);
    weights.linear("attention.output", {"hidden", heads, q(), c_.output_bias},
                   {{"self_attn.o_proj", c_.hidden}});
    // Written by old releases, computed here from the configuration.
    weights.ignore("self_attn.rotary_emb.inv_freq", "computed from config.json");
  }

  std::shared_ptr<const layers::Mixer> on_tensor_ranks(int tensor) const override {
    AttentionConfig own = c_;
    own.num_heads = div_exact(c_.num_heads, tensor);
    own.num_kv_heads = std::max<int64_t>(c_.num_kv_heads / tensor, 1);
    return attention(own);
  }

  std::string refuses_context(int, int heads) const override {
    const std::string queries = layers::refuses_heads("query heads", c_.num_heads, heads);
    return queries.empty() ? layers::refuses_shared_heads("key heads", c_.num_kv_heads, heads) : queries;
  }

  void name_ops(layers::OpScope& ops) const override {
    const bool window = c_.window > 0;
    ops.linear("attention.qkv", c_.hidden, q_proj() + 2 * kv(), c_.qkv_bias);
    ops.linear("attention.output", q(), c_.hidden, c_.output_bias);
    ops.use<ops::Rotary>(kName, {ops.dtype(), c_.head_dim, c_.norm.exists && !c_.norm.all_heads,
                                 c_.head_dim - layers::rotated_width(c_.rope, c_.head_dim), form_of(c_)});
    if (c_.norm.all_heads)
      for (const auto& [norm, all] : {std::pair{"attention.q_norm", q()}, {"attention.k_norm", kv()}})
        ops.use<ops::RmsNorm>(norm, {ops.dtype(), all, static_cast<float>(c_.norm.offset)});
    ops.use<ops::Attention>(kName, {.dtype = ops.dtype(),
                                    .heads = c_.num_heads,
                                    .kv_heads = c_.num_kv_heads,
                                    .head_dim = c_.head_dim,
                                    .window = window,
                                    .sinks = c_.sinks});
    ops.use<ops::PagedAttention>(kName,
                                 {ops.dtype(), c_.num_heads, c_.num_kv_heads, c_.head_dim, window, c_.sinks});
  }

  std::unique_ptr<layers::BoundMixer> bind(const layers::Binding& binding) const override {
    return std::make_unique<BoundAttention>(c_, binding);
  }

  std::unique_ptr<layers::MixerPages> make_pages(const layers::PageSizes& sizes, DType dtype,
                                                 Device device) const override {
    return std::make_unique<KvPages>(sizes, c_.num_kv_heads, c_.head_dim, dtype, device);
  }

  // Causal attention counts the half that is computed.
  double flops(std::span<const int32_t> document_lengths) const override {
    double tokens = 0, attended = 0;
    for (const int32_t length : document_lengths) {
      const auto n = static_cast<double>(length);
      const double w = c_.window > 0 ? std::min(static_cast<double>(c_.window), n) : n;
      tokens += n;
      attended += w * (w + 1) / 2 + (n - w) * w;
    }
    const auto wide = static_cast<double>(q()),
               weights = static_cast<double>(c_.hidden * (q_proj() + q() + 2 * kv()));
    return 2 * tokens * weights + 4 * wide * attended;
  }

  Json::Object describe() const override {
    Json::Object all{{"num_attention_heads", c_.num_heads},
                     {"num_key_value_heads", c_.num_kv_heads},
                     {"head_dim", c_.head_dim},
                     {"biases of q, k and v", c_.qkv_bias},
                     {"bias of o", c_.output_bias},
                     {"norms of q and k", c_.norm.exists},
                     {"sliding_window", c_.window}};
    if (c_.norm.all_heads) all.emplace_back("norms of all heads", true);
    if (c_.norm.offset != 0) all.emplace_back("norm_offset of q and k", c_.norm.offset);
    if (c_.scale != 0) all.emplace_back("attention scale", c_.scale);
    if (c_.interleaved) all.emplace_back("interleaved rotation", true);
    if (c_.sinks) all.emplace_back("sinks of attention", true);
    if (c_.output_gate) all.emplace_back("gate of attention's output", true);
    for (auto& entry : layers::describe(c_.rope)) all.push_back(std::move(entry));
    return all;
  }

 private:
  int64_t q() const { return c_.num_heads * c_.head_dim; }
  int64_t q_proj() const { return c_.output_gate ? 2 * q() : q(); }
  int64_t kv() const { return c_.num_kv_heads * c_.head_dim; }

  AttentionConfig c_;
};

}  // namespace

std::shared_ptr<const layers::Mixer> attention(const AttentionConfig& config) {
  return std::make_shared<Attention>(config);
}

}  // namespace temper::mixers
