#include "ops/causal_conv1d/causal_conv1d.h"

#include "base/tracing/trace.h"
#include "ops/causal_conv1d/composition.h"
#include "ops/checks.h"
#include "ops/op_info.h"
#include "ops/op_listener.h"
#include "ops/slot_rows.h"

namespace temper::ops {
namespace {

constexpr int64_t kMaxWidth = 16;

// What both ops take.
void check_rows(std::string_view name, const Tensor& x, const Tensor& weight) {
  check_ndim(name, "x", x, 2);
  check_float(name, "x", x);
  check_contiguous(name, "x", x, 1);
  check_ndim(name, "weight", weight, 2);
  check_shape(name, "weight", weight, {x.dim(1), weight.dim(1)});
  check_dtype(name, "weight", weight, x.dtype());
  check_contiguous(name, "weight", weight);
  if (weight.dim(1) < 2 || weight.dim(1) > kMaxWidth)
    fail("[{}] weight is {}, needs 2 to {} columns", name, to_string(weight.shape()), kMaxWidth);
}

void check_window(std::string_view name, std::string_view label, const Tensor& window, int64_t count,
                  const Tensor& x, const Tensor& weight) {
  check_shape(name, label, window, {count, weight.dim(1) - 1, x.dim(1)});
  check_dtype(name, label, window, x.dtype());
  check_contiguous(name, label, window);
}

// Forward reads x and writes y; backward reads x and dy and writes dx.
trace::OpWork work(const Tensor& x) {
  const auto bytes = static_cast<double>(x.bytes());
  return {{0, 2 * bytes}, {0, 3 * bytes}};
}

}  // namespace

Convolved causal_conv1d(Tape& tape, Bound<CausalConv1d> bound, const Var& x, const Var& weight,
                        const Var& initial, CausalConv1d op, bool want_final) {
  constexpr auto name = CausalConv1d::kName;
  check_rows(name, x.value, weight.value);
  check_documents(name, op.documents, x.shape()[0]);
  if (initial.value.defined())
    check_window(name, "initial", initial.value, op.documents.count(), x.value, weight.value);
  const trace::Span span(name, [&] { return work(x.value); });
  const auto& kernel = *bound;
  op.tiling = kernel.tiling;
  if (kernel.compose != nullptr)
    return observed(name, weight.value, kernel.compose(tape, x, weight, initial, op, want_final),
                    {&Convolved::y});
  op.x = x.value;
  op.weight = weight.value;
  op.initial = initial.value;
  const CausalConv1d::Output out = kernel.forward(op, want_final);
  op.x = {};
  const auto backward = [op, y = out.y.shape(), x_saved = x.saved(), x = x.slot, weight = weight.slot,
                         initial = initial.slot, &kernel](const std::vector<Tensor>& grads) {
    CausalConv1d again = op;
    again.x = x_saved.get();
    const bool has_final = grads.size() > 1 && grads[1].defined();
    // Where only the final window had a gradient.
    const Tensor dy = grads[0].defined()
                          ? grads[0].contiguous()
                          : Tensor::zeros(y, again.x.dtype(), MemoryTag::kActivations, again.x.device());
    const CausalConv1d::Grads own = kernel.backward(again, dy, has_final ? grads[1].contiguous() : Tensor(),
                                                    {x != nullptr, initial != nullptr},
                                                    weight ? weight->target(op.weight) : GradTarget{});
    if (x) x->add(own.x);
    if (initial) initial->add(own.initial);
  };
  std::vector<Tensor> outputs{out.y};
  if (want_final) outputs.push_back(out.final_window);
  const std::vector<Var> vars = tape.record(std::move(outputs), {&x, &weight, &initial}, backward);
  return observed(name, weight.value, Convolved{vars[0], want_final ? vars[1] : Var{}}, {&Convolved::y});
}

Tensor causal_conv1d_update(Bound<CausalConv1dUpdate> bound, const CausalConv1dUpdate& op) {
  constexpr auto name = CausalConv1dUpdate::kName;
  check_rows(name, op.x, op.weight);
  check_window(name, "window", op.window, op.slots.defined() ? op.window.dim(0) : op.x.dim(0), op.x,
               op.weight);
  check_slots(name, op.slots, op.x.dim(0), op.window);
  const auto& kernel = *bound;
  return observed(name, op.weight, kernel.compose != nullptr ? kernel.compose(op) : kernel.forward(op));
}

namespace {

Tensor window_of(const CausalConv1d& op) {
  return empty_like(op.x, {op.documents.count(), op.width() - 1, op.channels()});
}

CausalConv1d::Output outline_forward(const CausalConv1d& op, bool want_final) {
  return {empty_like(op.x, op.x.shape()), want_final ? window_of(op) : Tensor()};
}

CausalConv1d::Grads outline_backward(const CausalConv1d& op, const Tensor& dy, const Tensor&,
                                     CausalConv1d::Wanted wanted, const GradTarget&) {
  return {wanted.x ? empty_like(dy, op.x.shape()) : Tensor(), wanted.initial ? window_of(op) : Tensor()};
}

Tensor outline_update(const CausalConv1dUpdate& op) { return empty_like(op.x, op.x.shape()); }

}  // namespace

Probe causal_conv1d_probe, causal_conv1d_update_probe;

void register_causal_conv1d() {
  register_op<CausalConv1d>(compose_causal_conv1d, causal_conv1d_probe, {outline_forward, outline_backward},
                            {.cpu = {{{"simd", "simd"}}}, .gpu = {{{"cuda", "cuda"}, {"fla", "cuda"}}}});
  register_op<CausalConv1dUpdate>(compose_causal_conv1d_update, causal_conv1d_update_probe, {outline_update},
                                  {.cpu = {{{"simd", "simd"}}}, .gpu = {{{"cuda", "cuda"}}}});
}

}  // namespace temper::ops
