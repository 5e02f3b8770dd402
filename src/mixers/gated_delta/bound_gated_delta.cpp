#include "mixers/gated_delta/bound_gated_delta.h"

#include "layers/glue.h"
#include "layers/linear.h"
#include "mixers/gated_delta/bound_delta_rule.h"
#include "mixers/gated_delta/delta_pages.h"
#include "mixers/gated_delta/passed_states.h"
#include "mixers/gated_delta/rounding_map.h"
#include "ops/causal_conv1d/causal_conv1d.h"
#include "ops/chunk_gated_delta_rule/delta_gates.h"
#include "ops/rms_norm_gated/rms_norm_gated.h"
#include "ops/slot_rows.h"
#include "tensor/host_inputs.h"

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

// What documents leave behind, and take up: both are changed where they lie.
struct Kept {
  Tensor windows;  // [documents, width - 1, channels]; undefined: starts at 0, and nothing is kept
  Tensor states;   // [documents, heads, key_dim, value_dim] float32
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

// What an op makes of all rows at once, or, where adapters have weights of their own, of each adapter's.
template <class F>
std::vector<Var> by_pieces(Tape& tape, const AdaptedRows& rows, const std::vector<Var>& inputs,
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

struct Kernels {
  explicit Kernels(const layers::Binding& binding)
      : conv(binding.kernel<ops::CausalConv1d>(kGatedDelta)),
        conv_update(binding.kernel<ops::CausalConv1dUpdate>(kGatedDelta)),
        gates(binding.kernel<ops::DeltaGates>(kGatedDelta)),
        norm(binding.kernel<ops::RmsNormGated>(kGatedDelta)) {}

  ops::Bound<ops::CausalConv1d> conv;
  ops::Bound<ops::CausalConv1dUpdate> conv_update;
  ops::Bound<ops::DeltaGates> gates;
  ops::Bound<ops::RmsNormGated> norm;
};

class BoundGatedDelta : public layers::BoundMixer {
 public:
  BoundGatedDelta(const GatedDeltaConfig& config, const layers::Binding& binding)
      : c_(config),
        qkvz_(binding, "delta.qkvz", false),
        ba_(binding, "delta.ba", false),
        output_(binding, "delta.output", false),
        conv_weight_(binding.weight("delta.conv.weight")),
        a_log_(binding.weight("delta.a_log")),
        dt_bias_(binding.weight("delta.dt_bias")),
        norm_weight_(binding.weight("delta.norm.weight")),
        kernels_(binding),
        rule_(config, binding, qkvz_.kernel()->batch_invariant) {}

  Var forward(Tape& tape, const Var& x, const Pass& pass) const override {
    return around(tape, x, pass, [&](const Projected& in, const ops::Gates& gates) {
      const ops::Documents documents{pass.cu_seqlens_q, pass.continued};
      return pass.context == nullptr ? mix(tape, c_, {in.qkv, gates, nullptr}, documents, pass.rows, {})
             : pass.context->spans   ? by_states(tape, in, gates, pass)
                                     : by_heads(tape, in, gates, documents, *pass.context);
    });
  }
  Var forward_batch(Tape& tape, const Var& x, const Pass& pass,
                    const layers::MixerPages& pages) const override {
    return around(tape, x, pass, [&](const Projected& in, const ops::Gates& gates) {
      return of_batch(tape, in, gates, pass, static_cast<const DeltaPages&>(pages));
    });
  }
  bool decodes_as_prompts() const override { return rule_.by_steps(); }
  bool batches_on_device() const override { return rule_.steps_repeat() && kernels_.conv_update->repeats; }
  std::string_view asks_host() const override {
    if (!kernels_.conv->repeats) return ops::CausalConv1d::kName;
    return rule_.chunks()->repeats ? std::string_view() : ops::ChunkGatedDeltaRule::kName;
  }

 private:
  // What comes before and behind the rule itself, which is f.
  template <class F>
  Var around(Tape& tape, const Var& x, const Pass& pass, const F& f) const {
    const Projected in = project(tape, x, pass.rows);
    const ops::Gates gates = gate(tape, in, pass.rows);
    const DType model = x.dtype();
    rounded_at(DeltaPoint::kProjections, model, in.qkv);
    rounded_at(DeltaPoint::kProjections, model, in.z);
    rounded_at(DeltaPoint::kGateProjections, model, in.b);
    rounded_at(DeltaPoint::kGates, model, gates.g);
    rounded_at(DeltaPoint::kGates, model, gates.beta);
    const Var y = f(in, gates);
    rounded_at(DeltaPoint::kDeltaRule, model, y);
    const Var normed = rounded_at(DeltaPoint::kGatedNorm, model, norm(tape, y, in.z, pass.rows));
    return rounded_at(DeltaPoint::kOutput, model,
                      output_(tape, layers::merge_heads(tape, normed), pass.rows));
  }

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

  ops::Gates gate(Tape& tape, const Projected& in, const AdaptedRows& rows) const {
    const std::vector<Var> gates =
        by_pieces(tape, rows, {in.a, in.b}, {&a_log_, &dt_bias_},
                  [&](const std::vector<Var>& inputs, const std::vector<Var>& weights, int64_t) {
                    const ops::Gates own =
                        ops::delta_gates(tape, kernels_.gates, inputs[0], inputs[1], weights[0], weights[1]);
                    return std::vector{own.g, own.beta};
                  });
    return {gates[0], gates[1]};
  }

  Var norm(Tape& tape, const Var& y, const Var& z, const AdaptedRows& rows) const {
    return by_pieces(tape, rows, {y, z}, {&norm_weight_},
                     [&](const std::vector<Var>& inputs, const std::vector<Var>& weights, int64_t) {
                       return std::vector{ops::rms_norm_gated(tape, kernels_.norm, inputs[0], inputs[1],
                                                              weights[0], static_cast<float>(c_.norm_eps))};
                     })[0];
  }

  // What the rule reads of tokens: those of some heads, where context ranks divide them.
  struct Mixed {
    Var qkv;  // [tokens, channels]
    ops::Gates gates;
    const layers::ContextPass* context;  // whose share of the heads it is; null: all of them
  };

  std::vector<layers::ColumnBlock> blocks() const {
    return {{c_.keys(), c_.key_heads}, {c_.keys(), c_.key_heads}, {c_.values(), c_.heads}};
  }

  // Of all tokens of the documents the rank's heads.
  Var by_heads(Tape& tape, const Projected& in, const ops::Gates& gates, const ops::Documents& documents,
               const layers::ContextPass& context) const {
    const layers::ColumnBlock heads{c_.heads, c_.heads};
    const Var qkv = context.all.own_heads(tape, {{in.qkv, blocks()}})[0];
    const std::vector<Var> own = context.all.own_heads(tape, {{gates.g, {heads}}, {gates.beta, {heads}}});
    const ops::Gates own_gates{layers::compact(tape, own[0]), layers::compact(tape, own[1])};
    const Var y = mix(tape, c_.on_context_ranks(context.all.ranks()), {qkv, own_gates, &context}, documents,
                      context.rows, {});
    return context.all.tokens_of_heads(tape, y);
  }

  // Of the rank's tokens all heads.
  Var by_states(Tape& tape, const Projected& in, const ops::Gates& gates, const Pass& pass) const {
    const layers::ContextPass& context = *pass.context;
    const WindowedTokens own = entering_windows(tape, in.qkv, c_.width, context);
    const Heads heads = heads_of(
        tape, c_,
        convolve(tape, {own.x, gates, nullptr}, pass.rows, {context.spans->starts}, {own.windows, {}}),
        in.qkv.dtype());
    return pass_states(tape, {heads.q, heads.k, heads.v, gates.g, gates.beta, {}}, rule_.op({}),
                       rule_.chunks(), context,
                       [&](const ops::ChunkGatedDeltaRule::Inputs& inputs, const ops::Documents& documents,
                           bool want_final) { return rule_(tape, inputs, documents, want_final); });
  }

  // The rows of q|k|v whose channels are here.
  Var columns_of(Tape& tape, const Var& weight, const layers::ContextPass* context) const {
    const Var own = context == nullptr ? weight : context->all.own_rows(tape, weight, blocks());
    return p::reshape(tape, own, {own.shape()[0], c_.width});
  }

  // [documents, width - 1, channels]: what is before each document, or Var{}; and where the windows move on,
  // or undefined.
  struct Windows {
    Var initial;
    Tensor moving;
  };

  Var convolve(Tape& tape, const Mixed& in, const AdaptedRows& rows, const ops::Documents& documents,
               const Windows& windows) const {
    const Var& qkv = in.qkv;
    const auto f = [&](const std::vector<Var>& inputs, const std::vector<Var>& weights, int64_t first) {
      const int64_t tokens = inputs[0].shape()[0];
      ops::CausalConv1d op;
      op.documents = tokens == qkv.shape()[0] ? documents : documents_of(documents, first, tokens);
      const Var weight = columns_of(tape, weights[0], in.context);
      if (!windows.initial.value.defined())
        return std::vector{ops::causal_conv1d(tape, kernels_.conv, inputs[0], weight, Var{}, op).y};
      int64_t before = 0;
      while (documents.start(before) < first) ++before;
      const int64_t count = op.documents.count();
      const Var initial =
          tokens == qkv.shape()[0] ? windows.initial : p::narrow(tape, windows.initial, 0, before, count);
      const ops::Convolved out =
          ops::causal_conv1d(tape, kernels_.conv, inputs[0], weight, initial, op, windows.moving.defined());
      if (windows.moving.defined()) windows.moving.narrow(0, before, count).copy_from(out.final_window.value);
      return std::vector{out.y};
    };
    return by_pieces(tape, rows, {qkv}, {&conv_weight_}, f)[0];
  }

  struct Heads {
    Var q, k, v;  // [tokens, heads, dim], views
  };
  static Heads heads_of(Tape& tape, const GatedDeltaConfig& c, const Var& qkv, DType model) {
    rounded_at(DeltaPoint::kConvolution, model, qkv);
    const std::vector<Var> parts = layers::split_columns(tape, qkv, {c.keys(), c.keys(), c.values()});
    return {layers::split_heads(tape, parts[0], c.key_dim), layers::split_heads(tape, parts[1], c.key_dim),
            layers::split_heads(tape, parts[2], c.value_dim)};
  }

  // `c`: of the heads that are here.
  Var mix(Tape& tape, const GatedDeltaConfig& c, const Mixed& in, const ops::Documents& documents,
          const AdaptedRows& rows, const Kept& kept) const {
    const ops::Gates& gates = in.gates;
    const bool keeps = kept.states.defined();
    const Windows windows =
        kept.windows.defined() ? Windows{tape.constant(kept.windows), kept.windows} : Windows{};
    const Heads heads = heads_of(tape, c, convolve(tape, in, rows, documents, windows), in.qkv.dtype());
    const Var initial = keeps ? tape.constant(kept.states) : Var{};
    const ops::DeltaResult out =
        rule_(tape, {heads.q, heads.k, heads.v, gates.g, gates.beta, initial}, documents, keeps);
    if (keeps && out.final_state.value.raw() != kept.states.raw())
      kept.states.copy_from(out.final_state.value);
    return out.y;
  }

  // One token of each sequence. `slots` [sequences] int32 on the device: where each has what it keeps.
  Var decode(Tape& tape, const Projected& in, const ops::Gates& gates, const AdaptedRows& rows,
             const DeltaPages& pages, const Tensor& slots) const {
    const auto f = [&](const std::vector<Var>& inputs, const std::vector<Var>& weights, int64_t first) {
      return std::vector{tape.constant(ops::causal_conv1d_update(
          kernels_.conv_update, {inputs[0].value, columns_of(tape, weights[0], nullptr).value,
                                 pages.windows(), slots.narrow(0, first, inputs[0].shape()[0])}))};
    };
    const Heads heads =
        heads_of(tape, c_, by_pieces(tape, rows, {in.qkv}, {&conv_weight_}, f)[0], in.qkv.dtype());
    return tape.constant(
        rule_.step({heads.q, heads.k, heads.v, gates.g, gates.beta, {}}, pages.states(), slots));
  }

  // Some rows of what is there of all tokens; the gate z is read with all rows at once.
  static std::pair<Projected, ops::Gates> part(Tape& tape, const Projected& in, const ops::Gates& gates,
                                               int64_t first, int64_t tokens) {
    const auto rows = [&](const Var& x) { return p::narrow(tape, x, 0, first, tokens); };
    return {{rows(in.qkv), {}, {}, {}}, {rows(gates.g), rows(gates.beta)}};
  }

  Var of_batch(Tape& tape, const Projected& in, const ops::Gates& gates, const Pass& pass,
               const DeltaPages& pages) const {
    const layers::PagedBatch& batch = *pass.batch;
    const int64_t decoding = batch.decoding, others = batch.sequences.count() - decoding,
                  tokens = in.qkv.shape()[0];
    std::vector<Var> results;
    if (decoding > 0) {
      const auto [own, own_gates] = part(tape, in, gates, 0, decoding);
      const Tensor slots = from_host(batch.slots, in.qkv.value.device()).narrow(0, 0, decoding);
      results.push_back(decode(tape, own, own_gates, pass.rows.part(0, decoding), pages, slots));
    }
    if (others > 0) {
      const int64_t own_tokens = tokens - decoding;
      const auto [own, own_gates] = part(tape, in, gates, decoding, own_tokens);
      const Tensor slots = batch.slots.narrow(0, decoding, others);
      const ops::SlotRows windows(pages.windows(), slots), states(pages.states(), slots);
      results.push_back(mix(tape, c_, {own.qkv, own_gates, nullptr},
                            {batch.sequences.part(decoding, others).starts},
                            pass.rows.part(decoding, own_tokens), {windows.rows(), states.rows()}));
      windows.store();
      states.store();
    }
    return results.size() == 1 ? results.front() : p::concat_first(tape, results);
  }

  GatedDeltaConfig c_;
  layers::Linear qkvz_, ba_, output_;
  BoundWeight conv_weight_, a_log_, dt_bias_, norm_weight_;
  Kernels kernels_;
  BoundDeltaRule rule_;
};

}  // namespace

std::unique_ptr<layers::BoundMixer> bind_gated_delta(const GatedDeltaConfig& config,
                                                     const layers::Binding& binding) {
  return std::make_unique<BoundGatedDelta>(config, binding);
}

}  // namespace temper::mixers
