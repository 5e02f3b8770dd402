#include "ops/lora_moe_experts/lora_moe_experts.h"

#include <algorithm>

#include "base/tracing/trace.h"
#include "ops/moe_experts/compose.h"
#include "ops/op_info.h"
#include "ops/op_listener.h"

namespace temper::ops {
namespace {

namespace p = primitives;
using Slot = std::shared_ptr<GradSlot>;

Var compose(Tape& tape, const Var& x, const Tensor& ids, const Var& weights, int64_t experts,
            const AdaptedExperts& gate_up, const AdaptedExperts& down) {
  const auto by = [&](const AdaptedExperts& adapted) {
    return [&, matrices = adapted.matrices.widened()](int64_t expert, const Var& rows) {
      const auto own = [&](const Var& all) { return matrix_of_expert(tape, all, expert, experts); };
      const Var y = p::matmul(tape, rows, own(matrices), {.transpose_b = true});
      if (adapted.update.slices.empty()) return y;
      std::vector<LowRankSlice<Var>> slices = adapted.update.slices;
      for (auto& slice : slices) slice.b = own(slice.b);
      return p::add(tape, y, compose_update(tape, rows, own(adapted.update.a), slices, y.shape()[1]));
    };
  };
  return compose_experts(tape, x, ids, weights, experts, {by(gate_up), by(down)});
}

void check_frozen(const AdaptedExperts& adapted, std::string_view name) {
  if (adapted.matrices.value.requires_grad())
    fail("[{}] {} wants a gradient, but is frozen", LoraMoeExperts::kName, name);
}

void check_update(const ExpertsUpdate<Var>& update, const Var& x, int64_t experts, int64_t in, int64_t out) {
  constexpr auto op = LoraMoeExperts::kName;
  const auto check_matrix = [&](std::string_view name, const Tensor& tensor) {
    check_ndim(op, name, tensor, 2);
    check_dtype(op, name, tensor, x.dtype());
    check_contiguous(op, name, tensor);
  };
  if (update.slices.empty()) return;
  check_matrix("a", update.a.value);
  int64_t ranks = 0, column = 0;
  for (const auto& slice : update.slices) {
    check_matrix("b", slice.b.value);
    const int64_t rows = slice.b.shape()[0], rank = slice.b.shape()[1];
    if (rank < 1) fail("[{}] a slice has rank 0", op);
    if (rows % experts != 0)
      fail("[{}] b has {} rows, needs as many for each of {} experts", op, rows, experts);
    if (slice.column < column)
      fail("[{}] a slice begins at output {}, where another ends at {}", op, slice.column, column);
    column = slice.column + rows / experts;
    if (column > out)
      fail("[{}] a slice has outputs {} to {} of an expert, which has {}", op, slice.column, column, out);
    ranks += rank;
  }
  check_shape(op, "a", update.a.value, {experts * ranks, in});
}

// Multiplications and additions of an update for `rows` rows.
double flops_of(const ExpertsUpdate<Var>& update, double rows, int64_t experts) {
  if (update.slices.empty()) return 0;
  int64_t elements = update.a.value.numel();
  for (const auto& slice : update.slices) elements += slice.b.value.numel();
  return 2 * rows * static_cast<double>(elements / experts);
}

trace::OpWork work(const Var& x, const Tensor& ids, int64_t experts, const AdaptedExperts& gate_up,
                   const AdaptedExperts& down) {
  const auto rows = static_cast<double>(ids.numel());
  const int64_t hidden = x.shape()[1], width = down.matrices.shape()[1];
  const double base = 6 * rows * static_cast<double>(hidden * width);
  const double low = flops_of(gate_up.update, rows, experts) + flops_of(down.update, rows, experts);
  const double bytes =
      static_cast<double>(gate_up.matrices.value.value.bytes() + down.matrices.value.value.bytes()) +
      rows * static_cast<double>((2 * hidden + 3 * width) * size_of(x.dtype()));
  return {{base + low, bytes}, {base + 2 * low, bytes}};
}

void add_inputs(const ExpertsUpdate<Var>& update, std::vector<const Var*>& inputs) {
  if (update.slices.empty()) return;
  inputs.push_back(&update.a);
  for (const auto& slice : update.slices) inputs.push_back(&slice.b);
}

bool wants_gradient(const std::vector<const Var*>& inputs) {
  return std::any_of(inputs.begin(), inputs.end(), [](const Var* input) { return input->requires_grad(); });
}

LoraMoeExperts::Update values_of(const ExpertsUpdate<Var>& update) {
  if (update.slices.empty()) return {};
  LoraMoeExperts::Update values{update.a.value, {}};
  for (const auto& slice : update.slices) values.slices.push_back({slice.column, slice.b.value, slice.scale});
  return values;
}

// Where the gradients of an update go.
struct UpdateSlots {
  explicit UpdateSlots(const ExpertsUpdate<Var>& update)
      : a(update.slices.empty() ? nullptr : update.a.slot) {
    for (const auto& slice : update.slices) b.push_back(slice.b.slot);
  }
  LoraMoeExperts::UpdateTargets targets(const LoraMoeExperts::Update& update) const {
    const auto target = [](const Slot& slot, const Tensor& value) {
      return slot ? slot->target(value) : GradTarget{};
    };
    LoraMoeExperts::UpdateTargets all{target(a, update.a), {}};
    for (size_t i = 0; i < b.size(); ++i) all.b.push_back(target(b[i], update.slices[i].b));
    return all;
  }

  Slot a;
  std::vector<Slot> b;
};

}  // namespace

Var lora_moe_experts(Tape& tape, Bound<LoraMoeExperts> bound, const Var& x, const Tensor& ids,
                     const Var& weights, const AdaptedExperts& gate_up, const AdaptedExperts& down) {
  const int64_t experts =
      check_experts(LoraMoeExperts::kName, x, ids, weights, gate_up.matrices, down.matrices);
  const int64_t hidden = x.shape()[1], width = down.matrices.shape()[1];
  check_frozen(gate_up, "gate_up");
  check_frozen(down, "down");
  check_update(gate_up.update, x, experts, hidden, 2 * width);
  check_update(down.update, x, experts, width, hidden);
  const trace::Span span(LoraMoeExperts::kName, [&] { return work(x, ids, experts, gate_up, down); });
  const auto& kernel = *bound;
  if (kernel.compose != nullptr)
    return observed(LoraMoeExperts::kName, gate_up.matrices.value.value,
                    kernel.compose(tape, x, ids, weights, experts, gate_up, down));
  LoraMoeExperts op{{x.value, ids, weights.value, {}, {}, {}, {}, experts},
                    values_of(gate_up.update),
                    values_of(down.update)};
  MoeExperts& base = op.experts;
  set_matrix(gate_up.matrices, x.value, kernel.traits.reads_codes, base.gate_up, base.gate_up_scales);
  set_matrix(down.matrices, x.value, kernel.traits.reads_codes, base.down, base.down_scales);
  std::vector<const Var*> inputs{&x, &weights};
  add_inputs(gate_up.update, inputs);
  add_inputs(down.update, inputs);
  LoraMoeExperts::Output out = kernel.forward(op, tape.recording() && wants_gradient(inputs));
  const Tensor y = std::exchange(out.y, {});
  // Nothing is kept that can be made again.
  base.x = base.gate_up = base.down = base.gate_up_scales = base.down_scales = {};
  const Var result = tape.record(y, inputs,
                                 [op, out, x_saved = x.saved(), in_saved = gate_up.matrices.value.saved(),
                                  out_saved = down.matrices.value.saved(), x_slot = x.slot,
                                  weights_slot = weights.slot, in_slots = UpdateSlots(gate_up.update),
                                  out_slots = UpdateSlots(down.update), &kernel](const Tensor& dy) {
                                   LoraMoeExperts whole = op;
                                   whole.experts.x = x_saved.get();
                                   whole.experts.gate_up = in_saved.get();
                                   whole.experts.down = out_saved.get();
                                   const auto grads = kernel.backward(
                                       whole, out, dy.contiguous(),
                                       {x_slot != nullptr, weights_slot != nullptr,
                                        in_slots.targets(op.gate_up), out_slots.targets(op.down)});
                                   if (x_slot) x_slot->add(grads.x);
                                   if (weights_slot) weights_slot->add(grads.weights);
                                 });
  return observed(LoraMoeExperts::kName, gate_up.matrices.value.value, result);
}

namespace {

Tensor outline_low(const LoraMoeExperts::Update& update, const MoeExperts& base) {
  if (update.slices.empty()) return {};
  return empty_like(base.x, {base.tokens() * base.top_k(), update.a.dim(0) / base.experts});
}

LoraMoeExperts::Output outline_forward(const LoraMoeExperts& op, bool want_saved) {
  const MoeExperts& base = op.experts;
  const int64_t rows = base.tokens() * base.top_k();
  LoraMoeExperts::Output out;
  out.y = empty_like(base.x, base.x.shape());
  if (!want_saved) return out;
  out.gate_up = empty_like(base.x, {rows, 2 * base.width()});
  out.places = empty_like(base.x, {2 * rows + base.experts + 1}, DType::kI32);
  out.low_gate_up = outline_low(op.gate_up, base);
  out.low_down = outline_low(op.down, base);
  return out;
}

MoeExperts::Grads outline_backward(const LoraMoeExperts& op, const LoraMoeExperts::Output&, const Tensor&,
                                   const LoraMoeExperts::Targets& targets) {
  MoeExperts::Grads grads;
  if (targets.x) grads.x = empty_like(op.experts.x, op.experts.x.shape());
  if (targets.weights) grads.weights = empty_like(op.experts.weights, op.experts.weights.shape());
  return grads;
}

}  // namespace

Probe lora_moe_experts_probe;

void register_lora_moe_experts() {
  register_op<LoraMoeExperts>(
      compose, lora_moe_experts_probe, {outline_forward, outline_backward},
      {.cpu = {{{"onednn", "onednn"}}}, .gpu = {{{"hopper", "hopper", "", 90}, {"cuda", "cuda"}}}});
}

}  // namespace temper::ops
