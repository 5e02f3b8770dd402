#include "ops/moe_router/moe_router.h"

#include <algorithm>
#include <cmath>

#include "base/tracing/trace.h"
#include "ops/checks.h"
#include "ops/moe_router/choose.h"
#include "ops/op_info.h"
#include "ops/op_listener.h"
#include "primitives/primitives.h"

namespace temper::ops {
namespace {

namespace p = primitives;

constexpr float kLeastSum = 1e-20f;

// Σ over the tokens of [tokens, n]: [1, n].
Var sum_tokens(Tape& tape, const Var& x) {
  return p::transpose(tape, p::sum_last(tape, p::transpose(tape, x, 0, 1)), 0, 1);
}

Var softmax(Tape& tape, const Var& logits) {
  const Var powers = p::exp(tape, p::sub(tape, logits, p::max_last(tape, logits)));
  return p::div(tape, powers, p::sum_last(tape, powers));
}

struct Chosen {
  Tensor ids, counts;  // on the CPU
};

// How many of the first tokens are no padding, for who is led by the host.
int64_t counted_tokens(const MoeRouter& op, int64_t tokens) {
  return op.counted.defined() ? std::clamp<int64_t>(op.counted.on({}).values<int32_t>()[0], 0, tokens)
                              : tokens;
}

// By scores on the CPU.
Chosen choose(const MoeRouter& op, const Tensor& logits, const Tensor& scores) {
  const int64_t tokens = scores.dim(0), experts = op.routing.experts, top_k = op.routing.top_k,
                counted = counted_tokens(op, tokens);
  const Tensor given = op.given.defined() ? op.given.on({}) : Tensor(),
               bias = op.bias.defined() ? op.bias.on({}) : Tensor();
  Chosen chosen{Tensor::empty({tokens, top_k}, DType::kI32, MemoryTag::kData),
                Tensor::zeros({experts + 1}, DType::kI32, MemoryTag::kData)};
  if (given.defined()) chosen.ids.copy_from(given);
  ExpertChooser chooser(op.routing);
  const auto row_of = [](const auto all, int64_t row, int64_t width) {
    return all.subspan(static_cast<size_t>(row * width), static_cast<size_t>(width));
  };
  const std::span<int32_t> ids(chosen.ids.data<int32_t>(), static_cast<size_t>(tokens * top_k));
  int32_t* const counts = chosen.counts.data<int32_t>();
  for (int64_t t = 0; t < tokens; ++t) {
    const std::span<int32_t> own = row_of(ids, t, top_k);
    if (!given.defined())
      chooser.choose(row_of(scores.values<float>(), t, experts),
                     bias.defined() ? bias.values<float>() : std::span<const float>(), own);
    if (t >= counted) continue;
    for (const int32_t id : own) ++counts[id];
    bool finite = true;
    for (const float logit : row_of(logits.values<float>(), t, experts))
      finite = finite && std::isfinite(logit);
    counts[experts] += finite ? 0 : 1;
  }
  return chosen;
}

// The entropies' sum next to the sums of p [tokens, experts]; no gradient flows from it.
Var with_entropy(Tape& tape, const Var& sums, const Tensor& probabilities) {
  double entropy = 0;
  const Tensor seen = probabilities.on({}).contiguous();
  for (const float value : seen.values<float>())
    if (value > 0) entropy -= static_cast<double>(value) * std::log(static_cast<double>(value));
  const Tensor last = Tensor::from(std::vector<float>{static_cast<float>(entropy)}).reshape({1, 1});
  const int64_t width = sums.shape()[1] + 1;
  return p::reshape(tape, p::concat_last(tape, sums, tape.constant(last.on(sums.value.device()))), {width});
}

MoeRouter::Routes compose(Tape& tape, const Var& given_logits, const MoeRouter& op, bool want_sums) {
  const Routing& routing = op.routing;
  const Var logits = p::cast(tape, given_logits, DType::kF32);
  const Var scores = routing.sigmoid ? p::sigmoid(tape, logits) : softmax(tape, logits);
  const Device device = logits.value.device();
  const Chosen chosen = choose(op, logits.value.on({}), scores.value.on({}).contiguous());
  Var weights;
  for (int64_t j = 0; j < routing.top_k; ++j) {
    const Var one = p::take_last(tape, scores, chosen.ids.narrow(1, j, 1).contiguous(MemoryTag::kData));
    weights = j == 0 ? one : p::concat_last(tape, weights, one);
  }
  if (routing.normalize)
    weights = p::div(tape, weights, p::add_scalar(tape, p::sum_last(tape, weights), kLeastSum));
  MoeRouter::Routes routes{chosen.ids.on(device), p::scale(tape, weights, routing.scaling), {}, {}};
  if (!want_sums) return routes;
  routes.counts = chosen.counts.on(device);
  const Var all = routing.sigmoid ? p::div(tape, scores, p::sum_last(tape, scores)) : scores,
            parts = p::narrow(tape, all, 0, 0, counted_tokens(op, all.shape()[0]));
  routes.sums = with_entropy(tape, sum_tokens(tape, parts), parts.value);
  return routes;
}

void check_routing(const Routing& r) {
  constexpr std::string_view kOp = MoeRouter::kName;
  if (r.experts < 1 || r.top_k < 1 || r.top_k > r.experts)
    fail("[{}] top {} of {} experts, needs 1 to as many as there are", kOp, r.top_k, r.experts);
  if (r.groups < 1 || r.experts % r.groups != 0 || (r.groups > 1 && r.experts / r.groups < 2))
    fail("[{}] {} groups of {} experts, needs groups of equally many, two at least", kOp, r.groups,
         r.experts);
  if (r.top_groups < 1 || r.top_groups > r.groups || r.top_groups * (r.experts / r.groups) < r.top_k)
    fail("[{}] top {} of the experts in {} of {} groups of {}, needs as many there", kOp, r.top_k,
         r.top_groups, r.groups, r.experts / r.groups);
}

void check(const Var& logits, const MoeRouter& op) {
  constexpr std::string_view kOp = MoeRouter::kName;
  check_routing(op.routing);
  check_ndim(kOp, "logits", logits.value, 2);
  check_float(kOp, "logits", logits.value);
  const int64_t tokens = logits.shape()[0];
  check_shape(kOp, "logits", logits.value, {tokens, op.routing.experts});
  check_contiguous(kOp, "logits", logits.value);
  if (op.bias.defined()) {
    check_shape(kOp, "bias", op.bias, {op.routing.experts});
    check_dtype(kOp, "bias", op.bias, DType::kF32);
  }
  if (op.counted.defined()) {
    check_shape(kOp, "counted", op.counted, {1});
    check_dtype(kOp, "counted", op.counted, DType::kI32);
  }
  if (!op.given.defined()) return;
  check_shape(kOp, "given", op.given, {tokens, op.routing.top_k});
  check_dtype(kOp, "given", op.given, DType::kI32);
  check_contiguous(kOp, "given", op.given);
  for (const int32_t id : visible_ids(op.given))
    if (id < 0 || id >= op.routing.experts)
      fail("[{}] given has expert {}, needs 0 to {}", kOp, id, op.routing.experts - 1);
}

}  // namespace

MoeRouter::Routes moe_router(Tape& tape, Bound<MoeRouter> bound, const Var& logits, MoeRouter op,
                             bool want_sums) {
  check(logits, op);
  const trace::Span span(MoeRouter::kName, [&] {
    const auto bytes = static_cast<double>(logits.value.bytes());
    return trace::OpWork{{0, bytes}, {0, 2 * bytes}};
  });
  const auto& kernel = *bound;
  if (kernel.compose != nullptr)
    return observed(MoeRouter::kName, Tensor(), kernel.compose(tape, logits, op, want_sums),
                    {&MoeRouter::Routes::weights});
  op.logits = logits.value;
  const MoeRouter::Output out = kernel.forward(op, want_sums);
  if (!want_sums) {
    const Var weights =
        tape.record(out.weights, {&logits}, [op, out, slot = logits.slot, &kernel](const Tensor& dweights) {
          slot->add(kernel.backward(op, out, dweights.contiguous(), {}));
        });
    return observed(MoeRouter::kName, Tensor(), MoeRouter::Routes{out.ids, weights, {}, {}},
                    {&MoeRouter::Routes::weights});
  }
  const auto vars = tape.record({out.weights, out.sums}, {&logits},
                                [op, out, slot = logits.slot, &kernel](const std::vector<Tensor>& grads) {
                                  const auto compact = [](const Tensor& grad) {
                                    return grad.defined() ? grad.contiguous() : grad;
                                  };
                                  slot->add(kernel.backward(op, out, compact(grads[0]), compact(grads[1])));
                                });
  return observed(MoeRouter::kName, Tensor(), MoeRouter::Routes{out.ids, vars[0], out.counts, vars[1]},
                  {&MoeRouter::Routes::weights});
}

namespace {

MoeRouter::Output outline_forward(const MoeRouter& op, bool want_sums) {
  const Shape chosen{op.logits.dim(0), op.routing.top_k}, sums{op.routing.experts + 1};
  MoeRouter::Output out{
      empty_like(op.logits, chosen, DType::kI32), empty_like(op.logits, chosen, DType::kF32), {}, {}};
  if (want_sums) {
    out.counts = empty_like(op.logits, sums, DType::kI32);
    out.sums = empty_like(op.logits, sums, DType::kF32);
  }
  return out;
}

Tensor outline_backward(const MoeRouter& op, const MoeRouter::Output&, const Tensor&, const Tensor&) {
  return empty_like(op.logits, op.logits.shape());
}

// What the composition gives, where no values are there to choose by.
MoeRouter::Routes outline_compose(Tape& tape, const Var& logits, const MoeRouter& op, bool want_sums) {
  MoeRouter counted = op;
  counted.logits = logits.value;
  const MoeRouter::Output out = outline_forward(counted, want_sums);
  const auto vars = tape.record({out.weights, out.sums.defined() ? out.sums : out.weights}, {&logits},
                                [counted, out, slot = logits.slot](const std::vector<Tensor>& grads) {
                                  slot->add(outline_backward(counted, out, grads[0], grads[1]));
                                });
  return {out.ids, vars[0], out.counts, want_sums ? vars[1] : Var{}};
}

}  // namespace

Probe moe_router_probe;

void register_moe_router() {
  register_op<MoeRouter>(compose, moe_router_probe, {outline_forward, outline_backward, outline_compose},
                         {.cpu = {{{"simd", "simd"}}}, .gpu = {{{"cuda", "cuda"}}}});
}

}  // namespace temper::ops
