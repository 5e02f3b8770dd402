#include "ops/lora_linear/lora_linear.h"

#include <algorithm>

#include "base/tracing/trace.h"
#include "ops/checks.h"
#include "ops/op_info.h"
#include "ops/op_listener.h"
#include "primitives/primitives.h"

namespace temper::ops {
namespace {

namespace p = primitives;
using Groups = std::vector<LoraGroup<Var>>;

Var zeros_like(Tape& tape, const Var& x, Shape shape) {
  return tape.constant(Tensor::zeros(shape, x.dtype(), MemoryTag::kActivations, x.value.device()));
}

Var compose(Tape& tape, const Var& x, const Var& weight, const Var& bias, const Groups& groups) {
  Var y = p::matmul(tape, x, weight, {.transpose_b = true});
  if (bias.value.defined()) y = p::add(tape, y, bias);
  const int64_t rows = x.shape()[0], out = weight.shape()[0];
  for (const LoraGroup<Var>& group : groups) {
    const Var input =
        group.input.value.defined() ? group.input : p::narrow(tape, x, 0, group.row, group.rows);
    std::vector<Var> pieces;
    if (group.row > 0) pieces.push_back(zeros_like(tape, x, {group.row, out}));
    pieces.push_back(compose_update(tape, input, group.a, group.slices, out));
    const int64_t after = rows - group.row - group.rows;
    if (after > 0) pieces.push_back(zeros_like(tape, x, {after, out}));
    y = p::add(tape, y, p::concat_first(tape, pieces));
  }
  return y;
}

void check_matrix(std::string_view name, const Tensor& tensor, DType dtype) {
  check_ndim(LoraLinear::kName, name, tensor, 2);
  check_dtype(LoraLinear::kName, name, tensor, dtype);
  check_contiguous(LoraLinear::kName, name, tensor);
}

void check_group(const LoraGroup<Var>& group, const Var& x, const Shape& weight) {
  constexpr auto op = LoraLinear::kName;
  const int64_t rows = x.shape()[0], in = x.shape()[1], out = weight[0];
  if (group.row < 0 || group.rows < 0 || group.row + group.rows > rows)
    fail("[{}] a group has rows {} to {}, x has {}", op, group.row, group.row + group.rows, rows);
  check_matrix("a", group.a.value, x.dtype());
  if (group.input.value.defined()) {
    check_matrix("input", group.input.value, x.dtype());
    check_shape(op, "input", group.input.value, {group.rows, in});
  }
  int64_t ranks = 0, column = 0;
  for (const auto& slice : group.slices) {
    check_matrix("b", slice.b.value, x.dtype());
    if (slice.b.shape()[1] < 1) fail("[{}] a slice has rank 0", op);
    if (slice.column < column)
      fail("[{}] a slice begins at output {}, where another ends at {}", op, slice.column, column);
    column = slice.column + slice.b.shape()[0];
    if (column > out)
      fail("[{}] a slice has outputs {} to {}, the weight {}", op, slice.column,
           slice.column + slice.b.shape()[0], out);
    ranks += slice.b.shape()[1];
  }
  check_shape(op, "a", group.a.value, {ranks, in});
}

void check(const Var& x, const primitives::Matrix& weight, const Var& bias, const Groups& groups) {
  constexpr auto op = LoraLinear::kName;
  check_ndim(op, "x", x.value, 2);
  check_float(op, "x", x.value);
  check_contiguous(op, "x", x.value);
  check_weight(op, weight, x.dtype());
  check_shape(op, "x", x.value, {x.shape()[0], weight.shape()[1]});
  if (weight.value.requires_grad()) fail("[{}] the weight wants a gradient, but is frozen", op);
  if (bias.value.defined()) {
    check_shape(op, "bias", bias.value, {weight.shape()[0]});
    check_dtype(op, "bias", bias.value, x.dtype());
  }
  int64_t end = 0;
  for (const LoraGroup<Var>& group : groups) {
    check_group(group, x, weight.shape());
    if (group.row < end) fail("[{}] a group begins at row {}, where another ends at {}", op, group.row, end);
    end = group.row + group.rows;
  }
}

// The base's products, and those of the groups, which are three times as many backward.
trace::OpWork work(const Tensor& x, const Tensor& weight, const Groups& groups) {
  const double base = 2.0 * static_cast<double>(x.dim(0)) * static_cast<double>(weight.numel());
  double low = 0;
  for (const auto& group : groups) {
    int64_t elements = group.a.value.numel();
    for (const auto& slice : group.slices) elements += slice.b.value.numel();
    low += 2.0 * static_cast<double>(group.rows) * static_cast<double>(elements);
  }
  const auto bytes =
      static_cast<double>(x.bytes() + weight.bytes() + x.dim(0) * weight.dim(0) * size_of(x.dtype()));
  return {{base + low, bytes}, {base + 2 * low, bytes}};
}

std::vector<const Var*> inputs_of(const Var& x, const Var& weight, const Var& bias, const Groups& groups) {
  std::vector<const Var*> inputs{&x, &weight, &bias};
  for (const auto& group : groups) {
    inputs.push_back(&group.input);
    inputs.push_back(&group.a);
    for (const auto& slice : group.slices) inputs.push_back(&slice.b);
  }
  return inputs;
}

LoraLinear::Group values_of(const LoraGroup<Var>& group) {
  LoraLinear::Group values{group.row, group.rows, group.input.value, group.a.value, {}};
  for (const auto& slice : group.slices) values.slices.push_back({slice.column, slice.b.value, slice.scale});
  return values;
}

// The slots and what is kept of the inputs, without their values where they can be made again. `through`:
// whose swiglu x is and where its gradient goes instead, by a kernel that can make x again; or null.
struct Kept {
  Kept(const Var& x, const Var* through, const Var& weight, const Var& bias, const Groups& groups)
      : weight(weight.saved()), x_slot(through != nullptr ? through->slot : x.slot), bias(bias.slot) {
    if (through != nullptr) gate_up = through->value;
    for (const auto& group : groups) {
      inputs.push_back(group.input.saved());
      input_slots.push_back(group.input.slot);
      a.push_back(group.a.slot);
      b.emplace_back();
      for (const auto& slice : group.slices) b.back().push_back(slice.b.slot);
      if (group.a.slot && !group.input.value.defined() && !(gate_up.defined() && x.remake))
        saved_x = x.saved();
    }
  }

  LoraLinear::Targets targets(const LoraLinear& op) const {
    const auto target = [](const std::shared_ptr<GradSlot>& slot, const Tensor& value) {
      return slot ? slot->target(value) : GradTarget{};
    };
    LoraLinear::Targets targets{x_slot != nullptr, target(bias, op.bias), {}};
    for (size_t i = 0; i < op.groups.size(); ++i) {
      targets.groups.push_back({input_slots[i] != nullptr, target(a[i], op.groups[i].a), {}});
      for (size_t k = 0; k < b[i].size(); ++k)
        targets.groups.back().b.push_back(target(b[i][k], op.groups[i].slices[k].b));
    }
    return targets;
  }

  Tensor gate_up;
  Saved saved_x, weight;
  std::shared_ptr<GradSlot> x_slot, bias;
  std::vector<Saved> inputs;
  std::vector<std::shared_ptr<GradSlot>> input_slots, a;
  std::vector<std::vector<std::shared_ptr<GradSlot>>> b;
};

}  // namespace

Var lora_linear(Tape& tape, Bound<LoraLinear> bound, const Var& x, const primitives::Matrix& matrix,
                const Var& bias, const Groups& groups, const SwigluInProducts& swiglu) {
  check(x, matrix, bias, groups);
  const Var& weight = matrix.value;
  const trace::Span span(LoraLinear::kName, [&] { return work(x.value, weight.value, groups); });
  const auto& kernel = *bound;
  if (kernel.compose != nullptr)
    return observed(LoraLinear::kName, weight.value, kernel.compose(tape, x, matrix.widened(), bias, groups));
  LoraLinear op{x.value, {}, bias.value, {}};
  op.swiglu = swiglu.made != nullptr && kernel.traits.swiglu;
  set_weight(op, matrix, kernel);
  for (const auto& group : groups) op.groups.push_back(values_of(group));
  LoraLinear::Output out = kernel.forward(op);
  if (op.swiglu) *swiglu.made = out.swiglu;
  const bool own_inputs = std::any_of(groups.begin(), groups.end(),
                                      [](const auto& group) { return group.input.value.defined(); });
  Kept kept(x, kernel.traits.swiglu && !own_inputs ? swiglu.gate_up : nullptr, weight, bias, groups);
  op.x = op.weight = op.scales = {};
  for (auto& group : op.groups) group.input = {};
  const Var result =
      tape.record(out.y, inputs_of(x, weight, bias, groups),
                  [op, kept = std::move(kept), low = std::move(out.low), &kernel](const Tensor& dy) {
                    LoraLinear full = op;
                    full.x = kept.saved_x.get();
                    full.gate_up = kept.gate_up;
                    full.weight = kept.weight.get();
                    for (size_t i = 0; i < full.groups.size(); ++i)
                      full.groups[i].input = kept.inputs[i].get();
                    const auto grads = kernel.backward(full, low, dy.contiguous(), kept.targets(full));
                    if (kept.x_slot) kept.x_slot->add(grads.x);
                    for (size_t i = 0; i < grads.inputs.size(); ++i)
                      if (kept.input_slots[i]) kept.input_slots[i]->add(grads.inputs[i]);
                  });
  return observed(LoraLinear::kName, weight.value, result);
}

namespace {

Tensor empty_narrow(const LoraLinear::Group& group) {
  return empty_like(group.a, {group.rows, group.a.dim(0)});
}

LoraLinear::Output outline_forward(const LoraLinear& op) {
  const int64_t rows = op.x.dim(0), out = op.weight.dim(0);
  LoraLinear::Output made{empty_like(op.x, {rows, out}), {}, {}};
  for (const auto& group : op.groups) made.low.push_back(empty_narrow(group));
  if (op.swiglu) made.swiglu = empty_like(op.x, {rows, out / 2});
  return made;
}

// The gradients of the narrow products are there until the wide ones are done.
LoraLinear::Gradients outline_backward(const LoraLinear& op, const std::vector<Tensor>&, const Tensor& dy,
                                       const LoraLinear::Targets& targets) {
  LoraLinear::Gradients grads{{}, std::vector<Tensor>(op.groups.size())};
  std::vector<Tensor> narrow;
  for (size_t i = 0; i < op.groups.size(); ++i) {
    narrow.push_back(empty_narrow(op.groups[i]));
    if (targets.groups[i].input) grads.inputs[i] = empty_like(dy, {op.groups[i].rows, op.weight.dim(1)});
  }
  if (targets.x) grads.x = empty_like(dy, {dy.dim(0), (op.gate_up.defined() ? 2 : 1) * op.weight.dim(1)});
  return grads;
}

}  // namespace

Probe lora_linear_probe;

void register_lora_linear() {
  register_op<LoraLinear>(compose, lora_linear_probe, {outline_forward, outline_backward},
                          {.cpu = {{{"onednn", "onednn"}, {"onednn_invariant", "onednn_invariant"}}},
                           .gpu = {{{"hopper", "hopper", "", 90}, {"cublaslt", "cublaslt"}}}});
}

}  // namespace temper::ops
