#include "mixers/gated_delta/bound_gated_delta.h"

#include <cmath>

#include "layers/glue.h"
#include "layers/linear.h"
#include "mixers/gated_delta/delta_state.h"
#include "mixers/gated_delta/rounding_map.h"
#include "ops/causal_conv1d/causal_conv1d.h"
#include "ops/chunk_gated_delta_rule/chunk_gated_delta_rule.h"
#include "ops/chunk_gated_delta_rule/delta_gates.h"
#include "ops/chunk_gated_delta_rule/recurrent_gated_delta_rule.h"
#include "ops/rms_norm_gated/rms_norm_gated.h"

namespace temper::mixers {
namespace {

namespace p = primitives;
using layers::AdaptedRows;
using layers::BoundWeight;
using layers::Pass;

// What the projections of a token give.
struct Projected {
  Var qkv;   // [tokens, channels], before the convolution
  Var z;     // [tokens, heads, value_dim]
  Var b, a;  // [tokens, heads]
};

// The documents of some rows: adapters' rows are whole documents.
ops::Documents documents_of(const ops::Documents& all, int64_t first, int64_t rows) {
  std::vector<int32_t> starts{0}, continued;
  int64_t before = 0;
  for (int64_t d = 0; d < all.count(); ++d) {
    if (all.start(d) < first) ++before;
    if (all.start(d) < first || all.start(d) >= first + rows) continue;
    starts.push_back(static_cast<int32_t>(all.start(d + 1) - first));
    continued.push_back(static_cast<int32_t>(std::max<int64_t>(all.continues(d) - before, -1)));
  }
  return {Tensor::from(starts), all.continued.defined() ? Tensor::from(continued) : Tensor()};
}

class BoundGatedDelta : public layers::BoundMixer {
 public:
  BoundGatedDelta(const GatedDeltaConfig& config, const layers::Binding& binding)
      : c_(config),
        scale_(static_cast<float>(1 / std::sqrt(static_cast<double>(config.key_dim)))),
        qkvz_(binding, "delta.qkvz", false),
        ba_(binding, "delta.ba", false),
        output_(binding, "delta.output", false),
        conv_weight_(binding.weight("delta.conv.weight")),
        a_log_(binding.weight("delta.a_log")),
        dt_bias_(binding.weight("delta.dt_bias")),
        norm_weight_(binding.weight("delta.norm.weight")),
        conv_(binding.kernel<ops::CausalConv1d>(kGatedDelta)),
        conv_update_(binding.kernel<ops::CausalConv1dUpdate>(kGatedDelta)),
        gates_(binding.kernel<ops::DeltaGates>(kGatedDelta)),
        rule_(binding.kernel<ops::ChunkGatedDeltaRule>(kGatedDelta)),
        step_(binding.kernel<ops::RecurrentGatedDeltaRule>(kGatedDelta)),
        norm_(binding.kernel<ops::RmsNormGated>(kGatedDelta)) {}

  Var forward(Tape& tape, const Var& x, const Pass& pass, layers::MixerState* state) const override {
    auto* const kept = static_cast<DeltaState*>(state);
    const Projected in = project(tape, x, pass.rows);
    const ops::Gates gates = gate(tape, in, pass.rows);
    const DType model = x.dtype();
    rounded_at(DeltaPoint::kProjections, model, in.qkv);
    rounded_at(DeltaPoint::kProjections, model, in.z);
    rounded_at(DeltaPoint::kGateProjections, model, in.b);
    rounded_at(DeltaPoint::kGates, model, gates.g);
    rounded_at(DeltaPoint::kGates, model, gates.beta);
    const Var y = pass.decodes ? decode(tape, in, gates, pass.rows, *kept) : mix(tape, in, gates, pass, kept);
    rounded_at(DeltaPoint::kDeltaRule, model, y);
    const Var normed = rounded_at(DeltaPoint::kGatedNorm, model, norm(tape, y, in.z, pass.rows));
    return rounded_at(DeltaPoint::kOutput, model,
                      output_(tape, layers::merge_heads(tape, normed), pass.rows));
  }
  bool decodes_on_device() const override {
    return step_->forward != nullptr && conv_update_->forward != nullptr;
  }
  std::string_view asks_host() const override {
    if (!conv_->repeats) return ops::CausalConv1d::kName;
    return rule_->repeats ? std::string_view() : ops::ChunkGatedDeltaRule::kName;
  }

 private:
  Projected project(Tape& tape, const Var& x, const AdaptedRows& rows) const {
    const Var qkvz = qkvz_(tape, x, rows), ba = ba_(tape, x, rows);
    const int64_t group = c_.heads / c_.key_heads, values = group * c_.value_dim;
    const auto both = [&](const Var& first, const Var& second, const Var& b, const Var& a) {
      return Projected{first, layers::split_heads(tape, second, c_.value_dim), b, a};
    };
    if (c_.by_key_head) {
      const std::vector<Var> wide = layers::ungroup_columns(tape, qkvz, c_.key_heads,
                                                            {{c_.key_dim, c_.key_dim, values}, {values}}),
                             narrow = layers::ungroup_columns(tape, ba, c_.key_heads, {{group}, {group}});
      return both(wide[0], wide[1], narrow[0], narrow[1]);
    }
    const std::vector<Var> wide = layers::split_columns(tape, qkvz, {c_.channels(), c_.values()}),
                           narrow = layers::split_columns(tape, ba, {c_.heads, c_.heads});
    return both(wide[0], wide[1], narrow[0], narrow[1]);
  }

  // What an op makes of all rows at once, or, where adapters have weights of their own, of each adapter's.
  template <class F>
  static std::vector<Var> by_pieces(Tape& tape, const AdaptedRows& rows, const std::vector<Var>& inputs,
                                    std::initializer_list<const BoundWeight*> weights, const F& f) {
    if (rows.all().empty()) {
      std::vector<Var> values;
      for (const BoundWeight* weight : weights) values.push_back(weight->leaf(tape));
      return f(inputs, values, 0);
    }
    return rows.by_pieces(tape, inputs, {weights.begin(), weights.size()},
                          [&](const AdaptedRows::Piece& piece) {
                            std::vector<Var> values;
                            for (const p::Matrix& weight : piece.weights) values.push_back(weight.value);
                            return f(piece.inputs, values, piece.first);
                          });
  }

  ops::Gates gate(Tape& tape, const Projected& in, const AdaptedRows& rows) const {
    const std::vector<Var> gates = by_pieces(
        tape, rows, {in.a, in.b}, {&a_log_, &dt_bias_},
        [&](const std::vector<Var>& inputs, const std::vector<Var>& weights, int64_t) {
          const ops::Gates own = ops::delta_gates(tape, gates_, inputs[0], inputs[1], weights[0], weights[1]);
          return std::vector{own.g, own.beta};
        });
    return {gates[0], gates[1]};
  }

  Var norm(Tape& tape, const Var& y, const Var& z, const AdaptedRows& rows) const {
    return by_pieces(tape, rows, {y, z}, {&norm_weight_},
                     [&](const std::vector<Var>& inputs, const std::vector<Var>& weights, int64_t) {
                       return std::vector{ops::rms_norm_gated(tape, norm_, inputs[0], inputs[1], weights[0],
                                                              static_cast<float>(c_.norm_eps))};
                     })[0];
  }

  Var columns_of(Tape& tape, const Var& weight) const {
    return p::reshape(tape, weight, {c_.channels(), c_.width});
  }

  // A state belongs to one document, whose next window it takes.
  Var convolve(Tape& tape, const Var& qkv, const Pass& pass, const ops::Documents& documents,
               const DeltaState* state) const {
    const auto f = [&](const std::vector<Var>& inputs, const std::vector<Var>& weights, int64_t first) {
      const int64_t tokens = inputs[0].shape()[0];
      ops::CausalConv1d op;
      op.documents = tokens == qkv.shape()[0] ? documents : documents_of(documents, first, tokens);
      const Var window = state != nullptr ? tape.constant(state->window()) : Var{};
      const ops::Convolved out = ops::causal_conv1d(tape, conv_, inputs[0], columns_of(tape, weights[0]),
                                                    window, op, state != nullptr);
      if (state != nullptr) state->window().copy_from(out.final_window.value);
      return std::vector{out.y};
    };
    return by_pieces(tape, pass.rows, {qkv}, {&conv_weight_}, f)[0];
  }

  struct Heads {
    Var q, k, v;  // [tokens, heads, dim], views
  };
  Heads heads_of(Tape& tape, const Var& qkv, DType model) const {
    rounded_at(DeltaPoint::kConvolution, model, qkv);
    const std::vector<Var> parts = layers::split_columns(tape, qkv, {c_.keys(), c_.keys(), c_.values()});
    return {layers::split_heads(tape, parts[0], c_.key_dim), layers::split_heads(tape, parts[1], c_.key_dim),
            layers::split_heads(tape, parts[2], c_.value_dim)};
  }

  Var mix(Tape& tape, const Projected& in, const ops::Gates& gates, const Pass& pass,
          const DeltaState* state) const {
    ops::ChunkGatedDeltaRule op;
    op.documents = {pass.cu_seqlens_q, pass.continued};
    op.scale = scale_;
    const Heads heads = heads_of(tape, convolve(tape, in.qkv, pass, op.documents, state), in.qkv.dtype());
    const Var initial = state != nullptr ? tape.constant(state->state()) : Var{};
    const ops::DeltaResult out = ops::chunk_gated_delta_rule(
        tape, rule_, {heads.q, heads.k, heads.v, gates.g, gates.beta, initial}, op, state != nullptr);
    if (state != nullptr) state->state().copy_from(out.final_state.value);
    return out.y;
  }

  Var decode(Tape& tape, const Projected& in, const ops::Gates& gates, const AdaptedRows& rows,
             const DeltaState& state) const {
    const auto f = [&](const std::vector<Var>& inputs, const std::vector<Var>& weights, int64_t) {
      const Tensor y = ops::causal_conv1d_update(
          conv_update_, {inputs[0].value, columns_of(tape, weights[0]).value, state.window()});
      return std::vector{tape.constant(y)};
    };
    const Heads heads =
        heads_of(tape, by_pieces(tape, rows, {in.qkv}, {&conv_weight_}, f)[0], in.qkv.dtype());
    return tape.constant(
        ops::recurrent_gated_delta_rule(step_, {heads.q.value, heads.k.value, heads.v.value, gates.g.value,
                                                gates.beta.value, state.state(), scale_}));
  }

  GatedDeltaConfig c_;
  float scale_;
  layers::Linear qkvz_, ba_, output_;
  BoundWeight conv_weight_, a_log_, dt_bias_, norm_weight_;
  ops::Bound<ops::CausalConv1d> conv_;
  ops::Bound<ops::CausalConv1dUpdate> conv_update_;
  ops::Bound<ops::DeltaGates> gates_;
  ops::Bound<ops::ChunkGatedDeltaRule> rule_;
  ops::Bound<ops::RecurrentGatedDeltaRule> step_;
  ops::Bound<ops::RmsNormGated> norm_;
};

}  // namespace

std::unique_ptr<layers::BoundMixer> bind_gated_delta(const GatedDeltaConfig& config,
                                                     const layers::Binding& binding) {
  return std::make_unique<BoundGatedDelta>(config, binding);
}

}  // namespace temper::mixers
