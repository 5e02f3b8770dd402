#include "mixers/attention/attention.h"

#include <algorithm>
#include <cmath>

#include "layers/glue.h"
#include "layers/linear.h"
#include "mixers/attention/kv_state.h"
#include "ops/attention/attention.h"
#include "ops/attention/decode_attention.h"
#include "ops/rotary/rotary.h"

namespace temper::mixers {
namespace {

using layers::AdaptedRows;
using layers::Pass;

constexpr const char* kName = "attention";

class BoundAttention : public layers::BoundMixer {
 public:
  BoundAttention(const AttentionConfig& config, const layers::Binding& binding)
      : config_(config),
        scale_(static_cast<float>(1 / std::sqrt(static_cast<double>(config.head_dim)))),
        rope_(binding.rope.add(config.rope, config.head_dim)),
        qkv_(binding, "attention.qkv", config.qkv_bias),
        output_(binding, "attention.output", config.output_bias),
        rotary_(binding.kernel<ops::Rotary>(kName)),
        attention_(binding.kernel<ops::Attention>(kName)),
        decode_(binding.kernel<ops::DecodeAttention>(kName)) {
    if (!config.qk_norm) return;
    q_norm_ = binding.weight("attention.q_norm.weight");
    k_norm_ = binding.weight("attention.k_norm.weight");
  }

  Var forward(Tape& tape, const Var& x, const Pass& pass, layers::MixerState* state) const override {
    auto* const kept = static_cast<KvState*>(state);
    const Var y = mix(tape, rotate(tape, qkv_(tape, x, pass.rows), pass), pass, kept);
    return output_(tape, y, pass.rows);
  }
  bool decodes_on_device() const override { return decode_->forward != nullptr; }
  std::string_view asks_host() const override {
    return attention_->repeats ? std::string_view() : ops::Attention::kName;
  }

 private:
  ops::RotatedHeads rotate_rows(Tape& tape, const Var& qkv, const Var& q_norm, const Var& k_norm,
                                const Tensor& positions, const Pass& pass) const {
    const layers::RopeTables& rope = pass.rope[rope_];
    return ops::rotary(tape, rotary_, qkv, config_.num_heads, config_.num_kv_heads, q_norm, k_norm,
                       static_cast<float>(config_.norm_eps), positions, rope.cos, rope.sin);
  }
  ops::RotatedHeads rotate(Tape& tape, const Var& qkv, const Pass& pass) const {
    if (pass.rows.all().empty())
      return rotate_rows(tape, qkv, q_norm_.leaf(tape), k_norm_.leaf(tape), pass.positions, pass);
    const layers::BoundWeight* const norms[] = {&q_norm_, &k_norm_};
    const std::vector<Var> rotated =
        pass.rows.by_pieces(tape, {qkv}, norms, [&](const AdaptedRows::Piece& piece) {
          const Var& own = piece.inputs[0];
          const ops::RotatedHeads heads =
              rotate_rows(tape, own, piece.weights[0].value, piece.weights[1].value,
                          pass.positions.narrow(0, piece.first, own.shape()[0]), pass);
          return std::vector{heads.q, heads.k, heads.v};
        });
    return {rotated[0], rotated[1], rotated[2]};
  }

  Var mix(Tape& tape, const ops::RotatedHeads& heads, const Pass& pass, KvState* state) const {
    return layers::merge_heads(
        tape, pass.decodes ? decode(tape, heads, pass, *state) : attend(tape, heads, pass, state));
  }

  Var decode(Tape& tape, const ops::RotatedHeads& heads, const Pass& pass, const KvState& state) const {
    return tape.constant(
        ops::decode_attention(decode_, {heads.q.value, heads.k.value, heads.v.value, state.keys(),
                                        state.values(), pass.positions, scale_, config_.window}));
  }

  Var attend(Tape& tape, const ops::RotatedHeads& heads, const Pass& pass, KvState* state) const {
    Var k = heads.k, v = heads.v;
    if (state != nullptr) {
      auto [keys, values] = state->append(pass.state->length(), k.value, v.value);
      k = tape.constant(keys);
      v = tape.constant(values);
    }
    if (pass.seen) {
      k = primitives::gather_rows(tape, k, *pass.seen);
      v = primitives::gather_rows(tape, v, *pass.seen);
    }
    ops::Attention op;
    op.cu_seqlens_q = pass.cu_seqlens_q;
    op.cu_seqlens_k = pass.cu_seqlens_k;
    op.scale = scale_;
    op.window = config_.window;
    return ops::attention(tape, attention_, heads.q, k, v, op);
  }

  AttentionConfig config_;
  float scale_;
  size_t rope_;
  layers::Linear qkv_, output_;
  layers::BoundWeight q_norm_, k_norm_;
  ops::Bound<ops::Rotary> rotary_;
  ops::Bound<ops::Attention> attention_;
  ops::Bound<ops::DecodeAttention> decode_;
};

class Attention : public layers::Mixer {
 public:
  explicit Attention(const AttentionConfig& config) : c_(config) {}

  void declare(layers::WeightScope& weights) const override {
    weights.keep_together("heads*head_dim", c_.head_dim);
    weights.linear("attention.qkv", {"heads*head_dim", "hidden", c_.hidden, c_.qkv_bias},
                   {{"self_attn.q_proj", q()}, {"self_attn.k_proj", kv()}, {"self_attn.v_proj", kv()}});
    if (c_.qk_norm)
      for (const char* norm : {"q_norm.weight", "k_norm.weight"})
        weights.vector(std::string("attention.") + norm, "head_dim",
                       {{std::string("self_attn.") + norm, c_.head_dim}});
    weights.linear("attention.output", {"hidden", "heads*head_dim", q(), c_.output_bias},
                   {{"self_attn.o_proj", c_.hidden}});
    // Written by old releases, computed here from the configuration.
    weights.ignore("self_attn.rotary_emb.inv_freq", "computed from config.json");
  }

  void name_ops(layers::OpScope& ops) const override {
    const bool window = c_.window > 0;
    ops.linear("attention.qkv", c_.hidden, q() + 2 * kv(), c_.qkv_bias);
    ops.linear("attention.output", q(), c_.hidden, c_.output_bias);
    ops.use<ops::Rotary>(kName, {ops.dtype(), c_.head_dim, c_.qk_norm});
    ops.use<ops::Attention>(kName, {ops.dtype(), c_.num_heads, c_.num_kv_heads, c_.head_dim, window});
    ops.use<ops::DecodeAttention>(kName, {ops.dtype(), c_.num_heads, c_.num_kv_heads, c_.head_dim, window});
  }

  std::unique_ptr<layers::BoundMixer> bind(const layers::Binding& binding) const override {
    return std::make_unique<BoundAttention>(c_, binding);
  }

  std::unique_ptr<layers::MixerState> make_state(int64_t capacity, DType dtype,
                                                 Device device) const override {
    return std::make_unique<KvState>(capacity, c_.num_kv_heads, c_.head_dim, dtype, device);
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
               weights = static_cast<double>(c_.hidden * (2 * q() + 2 * kv()));
    return 2 * tokens * weights + 4 * wide * attended;
  }

  Json::Object describe() const override {
    Json::Object all{{"num_attention_heads", c_.num_heads},
                     {"num_key_value_heads", c_.num_kv_heads},
                     {"head_dim", c_.head_dim},
                     {"biases of q, k and v", c_.qkv_bias},
                     {"bias of o", c_.output_bias},
                     {"norms of q and k", c_.qk_norm},
                     {"sliding_window", c_.window}};
    for (auto& entry : layers::describe(c_.rope)) all.push_back(std::move(entry));
    return all;
  }

 private:
  int64_t q() const { return c_.num_heads * c_.head_dim; }
  int64_t kv() const { return c_.num_kv_heads * c_.head_dim; }

  AttentionConfig c_;
};

}  // namespace

std::shared_ptr<const layers::Mixer> attention(const AttentionConfig& config) {
  return std::make_shared<Attention>(config);
}

}  // namespace temper::mixers
