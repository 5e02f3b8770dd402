#include "ops/chunk_gated_delta_rule/chunk_gated_delta_rule.h"

#include <cmath>

#include "base/tracing/trace.h"
#include "ops/checks.h"
#include "ops/chunk_gated_delta_rule/composition.h"
#include "ops/chunk_gated_delta_rule/outlines.h"
#include "ops/op_info.h"
#include "ops/op_listener.h"
#include "ops/slot_rows.h"

namespace temper::ops {
namespace {

// What the rule and its step take alike, of rows that are tokens or sequences.
template <class Op>
void check_heads(const Op& op) {
  constexpr auto name = Op::kName;
  check_ndim(name, "q", op.q, 3);
  check_float(name, "q", op.q);
  check_shape(name, "k", op.k, op.q.shape());
  check_ndim(name, "v", op.v, 3);
  check_shape(name, "v", op.v, {op.q.dim(0), op.v.dim(1), op.v.dim(2)});
  for (const auto& [label, tensor] : {std::pair{"q", &op.q}, {"k", &op.k}, {"v", &op.v}}) {
    check_dtype(name, label, *tensor, op.q.dtype());
    check_contiguous(name, label, *tensor, 2);
  }
  if (op.q.dim(1) < 1 || op.v.dim(1) % op.q.dim(1) != 0)
    fail("[{}] {} value heads are not a multiple of {} key heads", name, op.v.dim(1), op.q.dim(1));
  for (const auto& [label, tensor] : {std::pair{"g", &op.g}, {"beta", &op.beta}}) {
    check_shape(name, label, *tensor, {op.v.dim(0), op.v.dim(1)});
    check_dtype(name, label, *tensor, DType::kF32);
    check_contiguous(name, label, *tensor);
  }
  if (op.norms && !(op.eps > 0)) fail("[{}] eps is {}, needs a value above 0", name, op.eps);
}

void check_state(std::string_view name, std::string_view label, const Tensor& state, int64_t count,
                 const Tensor& k, const Tensor& v) {
  check_shape(name, label, state, {count, v.dim(1), k.dim(2), v.dim(2)});
  check_dtype(name, label, state, DType::kF32);
  check_contiguous(name, label, state);
}

// Of values on the CPU: a front door never waits for a device.
void check_gates(std::string_view name, const Tensor& g, const Tensor& beta) {
  if (g.device().type != DeviceType::kCpu) return;
  const int64_t heads = g.dim(1);
  const auto refuse = [&](std::string_view label, size_t i, float value, std::string_view needs) {
    fail(
        "[{}] {} of token {}, head {} is {}, needs a finite value{}; check A_log and dt_bias of the model, "
        "or "
        "train with a lower learning rate",
        name, label, static_cast<int64_t>(i) / heads, static_cast<int64_t>(i) % heads, value, needs);
  };
  const auto decay = g.values<float>(), strength = beta.values<float>();
  for (size_t i = 0; i < decay.size(); ++i) {
    if (!(decay[i] <= 0) || !std::isfinite(decay[i])) refuse("g", i, decay[i], " of at most 0");
    if (!std::isfinite(strength[i])) refuse("beta", i, strength[i], "");
  }
}

// Of the recurrence, a multiply-add counts two: what the state knows of a key, the update, the read. Chunks
// multiply more, on matrix units.
trace::OpWork work(const ChunkGatedDeltaRule& op) {
  const double flops = 6 * static_cast<double>(op.v.numel() * op.key_dim());
  const auto bytes = static_cast<double>(op.q.bytes() + op.k.bytes() + 2 * op.v.bytes() + 2 * op.g.bytes());
  return {{flops, bytes}, {2 * flops, 2 * bytes}};
}

void check_rule(const ChunkGatedDeltaRule& op) {
  constexpr auto name = ChunkGatedDeltaRule::kName;
  check_heads(op);
  check_documents(name, op.documents, op.tokens());
  if (op.initial.defined()) check_state(name, "initial", op.initial, op.documents.count(), op.k, op.v);
  check_gates(name, op.g, op.beta);
}

// Of the states alone: without the read.
trace::OpWork work_of_states(const ChunkGatedDeltaRule& op) {
  return {{4 * static_cast<double>(op.v.numel() * op.key_dim()),
           static_cast<double>(op.k.bytes() + op.v.bytes() + 2 * op.g.bytes())},
          {}};
}

ChunkGatedDeltaRule::Inputs constants(const Tape& tape, const ChunkGatedDeltaRule& op, const Var& initial) {
  return {tape.constant(op.q), tape.constant(op.k),    tape.constant(op.v),
          tape.constant(op.g), tape.constant(op.beta), initial};
}

}  // namespace

DeltaResult chunk_gated_delta_rule(Tape& tape, Bound<ChunkGatedDeltaRule> bound,
                                   const ChunkGatedDeltaRule::Inputs& in, ChunkGatedDeltaRule op,
                                   bool want_final) {
  constexpr auto name = ChunkGatedDeltaRule::kName;
  op.q = in.q.value;
  op.k = in.k.value;
  op.v = in.v.value;
  op.g = in.g.value;
  op.beta = in.beta.value;
  op.initial = in.initial.value;
  check_rule(op);
  const trace::Span span(name, [&] { return work(op); });
  const auto& kernel = *bound;
  op.tiling = kernel.tiling;
  if (kernel.compose != nullptr)
    return observed(name, Tensor(), kernel.compose(tape, in, op, want_final), {&DeltaResult::y});
  const std::vector<const Var*> inputs{&in.q, &in.k, &in.v, &in.g, &in.beta, &in.initial};
  bool backward = false;
  for (const Var* input : inputs) backward = backward || (tape.recording() && input->requires_grad());
  ChunkGatedDeltaRule::Output out = kernel.forward(op, {want_final, backward && tape.keeps_states()});
  const Shape y_shape = out.y.shape();
  std::vector<Tensor> outputs{out.y};
  if (want_final) outputs.push_back(out.final_state);
  op.q = op.k = op.v = {};
  const std::vector<Var> vars = tape.record(
      std::move(outputs), inputs,
      [op, y_shape, kept = std::move(out.kept), q_saved = in.q.saved(), k_saved = in.k.saved(),
       v_saved = in.v.saved(), q = in.q.slot, k = in.k.slot, v = in.v.slot, g = in.g.slot,
       beta = in.beta.slot, initial = in.initial.slot, &kernel](const std::vector<Tensor>& grads) {
        ChunkGatedDeltaRule again = op;
        again.q = q_saved.get();
        again.k = k_saved.get();
        again.v = v_saved.get();
        const bool has_final = grads.size() > 1 && grads[1].defined();
        // Where only the final state had a gradient.
        const Tensor dy = grads[0].defined() ? grads[0].contiguous()
                                             : Tensor::zeros(y_shape, again.v.dtype(),
                                                             MemoryTag::kActivations, again.v.device());
        const auto own = kernel.backward(again, kept, dy, has_final ? grads[1].contiguous() : Tensor(),
                                         ChunkGatedDeltaRule::WantedGrads::kAll);
        for (const auto& [slot, grad] : {std::pair{&q, &own.q},
                                         {&k, &own.k},
                                         {&v, &own.v},
                                         {&g, &own.g},
                                         {&beta, &own.beta},
                                         {&initial, &own.initial}})
          if (*slot) (*slot)->add(*grad);
      });
  return observed(name, Tensor(), DeltaResult{vars[0], want_final ? vars[1] : Var{}}, {&DeltaResult::y});
}

Tensor delta_final_states(Bound<ChunkGatedDeltaRule> bound, const ChunkGatedDeltaRule& op) {
  check_rule(op);
  const trace::Span span("delta_final_states", [&] { return work_of_states(op); });
  const auto& kernel = *bound;
  if (kernel.compose == nullptr) {
    ChunkGatedDeltaRule tiled = op;
    tiled.tiling = kernel.tiling;
    return kernel.forward(tiled, {.final_state = true, .y = false}).final_state;
  }
  Tape tape(false);
  const Var initial = op.initial.defined() ? tape.constant(op.initial) : Var{};
  return kernel.compose(tape, constants(tape, op, initial), op, true).final_state.value;
}

Tensor delta_initial_gradients(Bound<ChunkGatedDeltaRule> bound, const ChunkGatedDeltaRule& op,
                               const Tensor& dy) {
  check_rule(op);
  const trace::Span span("delta_initial_gradients", [&] { return work_of_states(op); });
  const auto& kernel = *bound;
  if (kernel.compose == nullptr) {
    ChunkGatedDeltaRule tiled = op;
    tiled.tiling = kernel.tiling;
    return kernel.backward(tiled, {}, dy, {}, ChunkGatedDeltaRule::WantedGrads::kInitial).initial;
  }
  Tape tape;
  const Var initial =
      tape.variable(Tensor::zeros(op.state_shape(), DType::kF32, MemoryTag::kActivations, op.q.device()));
  const Var y = kernel.compose(tape, constants(tape, op, initial), op, false).y;
  if (y.requires_grad()) tape.backward(y, dy);
  return initial.slot->filled() ? initial.slot->take() : initial.value;
}

Tensor recurrent_gated_delta_rule(Bound<RecurrentGatedDeltaRule> bound, const RecurrentGatedDeltaRule& op) {
  check_heads(op);
  check_state(RecurrentGatedDeltaRule::kName, "state", op.state,
              op.slots.defined() ? op.state.dim(0) : op.sequences(), op.k, op.v);
  check_slots(RecurrentGatedDeltaRule::kName, op.slots, op.q.dim(0), op.state);
  if (op.by_documents()) {
    check_documents(RecurrentGatedDeltaRule::kName, op.documents, op.q.dim(0));
    invariant(!op.slots.defined(), "documents have no slots");
  }
  check_gates(RecurrentGatedDeltaRule::kName, op.g, op.beta);
  const auto& kernel = *bound;
  return observed(RecurrentGatedDeltaRule::kName, Tensor(),
                  kernel.compose != nullptr ? kernel.compose(op) : kernel.forward(op));
}

namespace {

ChunkGatedDeltaRule::Output outline_forward(const ChunkGatedDeltaRule& op,
                                            ChunkGatedDeltaRule::Wanted wanted) {
  return {wanted.y ? empty_like(op.v, op.v.shape()) : Tensor(),
          wanted.final_state ? empty_like(op.v, op.state_shape(), DType::kF32) : Tensor(),
          {}};
}

ChunkGatedDeltaRule::Grads outline_backward(const ChunkGatedDeltaRule& op, const std::vector<Tensor>&,
                                            const Tensor&, const Tensor&,
                                            ChunkGatedDeltaRule::WantedGrads wanted) {
  if (wanted == ChunkGatedDeltaRule::WantedGrads::kInitial) {
    ChunkGatedDeltaRule::Grads grads;
    grads.initial = empty_like(op.v, op.state_shape(), DType::kF32);
    return grads;
  }
  const auto like = [](const Tensor& x) { return empty_like(x, x.shape()); };
  return {like(op.q), like(op.k),    like(op.v),
          like(op.g), like(op.beta), op.initial.defined() ? like(op.initial) : Tensor()};
}

Tensor outline_step(const RecurrentGatedDeltaRule& op) { return empty_like(op.v, op.v.shape()); }

}  // namespace

Probe chunk_gated_delta_rule_probe, recurrent_gated_delta_rule_probe, delta_gates_probe;

void register_chunk_gated_delta_rule() {
  register_op<ChunkGatedDeltaRule>(
      compose_chunk_gated_delta_rule, chunk_gated_delta_rule_probe, {outline_forward, outline_backward},
      {.cpu = {{{"onednn", "onednn"}}},
       .gpu = {{{"hopper", "hopper", "", 90}, {"cuda", "cuda"}, {"fla", "cuda"}}}});
  register_op<RecurrentGatedDeltaRule>(compose_recurrent_gated_delta_rule, recurrent_gated_delta_rule_probe,
                                       {outline_step},
                                       {.cpu = {{{"simd", "simd"}}}, .gpu = {{{"cuda", "cuda"}}}});
  register_op<DeltaGates>(compose_delta_gates, delta_gates_probe, delta_gates_outline(),
                          {.cpu = {{{"simd", "simd"}}}, .gpu = {{{"cuda", "cuda"}}}});
}

}  // namespace temper::ops
