#include "channels/experts/quantized_experts.h"

#include "ops/op_listener.h"
#include "ops/parts_of_rows.h"
#include "primitives/primitives.h"

namespace temper::channels {
namespace {

namespace p = primitives;

std::string gate_up_of(const ExpertsConfig& config) { return config.module + ".experts.gate_up"; }
std::string down_of(const ExpertsConfig& config) { return config.module + ".experts.down"; }
std::string updates_of(const ExpertsConfig& config) { return config.module + ".experts.updates"; }

// One row for each choice, token by token.
Var one_for_each(Tape& tape, const Var& x, int64_t top_k) {
  if (top_k == 1) return x;
  const int64_t tokens = x.shape()[0], hidden = x.shape()[1];
  const Var none =
      tape.constant(Tensor::zeros({1, top_k, 1}, x.dtype(), MemoryTag::kWorkspace, x.value.device()));
  return p::reshape(tape, p::add(tape, p::reshape(tape, x, {tokens, 1, hidden}), none),
                    {tokens * top_k, hidden});
}

// Σ_j weights[t, j] · rows[t · top_k + j], in float32, rounded once.
Var weighted_sum(Tape& tape, const Var& rows, const Var& weights) {
  const int64_t tokens = weights.shape()[0], top_k = weights.shape()[1], hidden = rows.shape()[1];
  const Var wide = p::cast(tape, p::reshape(tape, rows, {tokens, top_k, hidden}), DType::kF32);
  const Var weighted = p::mul(tape, wide, p::reshape(tape, weights, {tokens, top_k, 1}));
  const Var sum = top_k == 1 ? weighted : p::sum_last(tape, p::transpose(tape, weighted, 1, 2));
  return p::cast(tape, p::reshape(tape, sum, {tokens, hidden}), rows.dtype());
}

// Of what a matrix reads, where rows are rounded alone; empty where nothing is rounded.
std::optional<quant::Format> format_of(const layers::OpScope& ops, const std::string& module) {
  const quantizers::PlannedQuantizer* const planned = ops.input_quantizer(module);
  if (planned != nullptr && planned->rounds_rows_alone()) return planned->format;
  if (ops.reads_inputs(module)) return std::nullopt;
  return quant::Format{};
}
// The same of what is bound.
bool rounds_rows_alone(const std::shared_ptr<const quantizers::BoundQuantizer>& quantizer) {
  return quantizer == nullptr || (quantizer->planned().of_input && quantizer->planned().rounds_rows_alone());
}

}  // namespace

bool QuantizedExperts::wanted(const layers::OpScope& ops, const ExpertsConfig& config) {
  return ops.reads_inputs(gate_up_of(config)) || ops.reads_inputs(down_of(config));
}

void QuantizedExperts::name_ops(layers::OpScope& ops, const ExpertsConfig& config) {
  const int64_t own = config.routing.experts / ops.expert_ranks();
  const auto in = format_of(ops, gate_up_of(config)), inner = format_of(ops, down_of(config));
  // Of experts that ranks divide each has some, and a row for each choice (TokenExchange).
  if (in && inner)
    ops.use<ops::RoundedExperts>(config.module + ".experts",
                                 {ops.dtype(), config.hidden, config.width, own,
                                  ops.expert_ranks() > 1 ? 1 : config.routing.top_k, *in, *inner});
  ops.use<ops::ExpertLinear>(gate_up_of(config), {ops.dtype(), config.hidden, 2 * config.width, own});
  ops.use<ops::ExpertLinear>(down_of(config), {ops.dtype(), config.width, config.hidden, own});
  // Adapters come later, of any rank.
  ops.use<ops::ExpertLinear>(updates_of(config), {ops.dtype(), 0, 0, own});
  ops.use<ops::Swiglu>(config.module + ".experts", {ops.dtype(), config.width});
}

bool QuantizedExperts::wanted(const layers::Binding& binding, const ExpertsConfig& config) {
  return binding.input_quantizer(gate_up_of(config)) != nullptr ||
         binding.input_quantizer(down_of(config)) != nullptr;
}

QuantizedExperts::QuantizedExperts(const layers::Binding& binding, const ExpertsConfig& config)
    : x_(binding.input_quantizer(gate_up_of(config))),
      inner_(binding.input_quantizer(down_of(config))),
      in_(binding.kernel<ops::ExpertLinear>(gate_up_of(config))),
      out_(binding.kernel<ops::ExpertLinear>(down_of(config))),
      updates_(binding.kernel<ops::ExpertLinear>(updates_of(config))),
      swiglu_(binding.kernel<ops::Swiglu>(config.module + ".experts")) {
  if (!rounds_rows_alone(x_) || !rounds_rows_alone(inner_)) return;
  const auto whole = binding.kernel<ops::RoundedExperts>(config.module + ".experts");
  if (whole->compose == nullptr) whole_ = whole;
}

Var QuantizedExperts::operator()(Tape& tape, const Var& x, const Tensor& ids, const Var& weights,
                                 const Var& gate_up, const Var& down) const {
  if (!whole_ || (x_ ? x_ : inner_)->all().mode() == quantizers::QuantizerMode::kObserve)
    return by_products(tape, x, ids, weights, gate_up, down, {});
  const auto rounding = [&](const auto& quantizer) {
    return quantizer ? quantizer->row_rounding(x.value.device()) : ops::RowRounding{};
  };
  return ops::rounded_experts(tape, *whole_, x, ids, weights,
                              {gate_up, down, rounding(x_), rounding(inner_)});
}

Var QuantizedExperts::by_products(Tape& tape, const Var& x, const Tensor& ids, const Var& weights,
                                  const Var& gate_up, const Var& down, const Updates& updates) const {
  const int64_t choices = ids.numel(), experts = down.shape()[0] / x.shape()[1];
  const ops::OpListener::RowsOfTokens each(ids.dim(1));
  const Tensor own_ids = ids.reshape({choices, 1});
  const auto product = [&](const auto& kernel, const auto& quantizer, const Var& rows, const Var& matrices,
                           const ops::ExpertsUpdate<Var>& update) {
    const Var read = quantizer ? (*quantizer)(tape, rows, own_ids, weights.value) : rows;
    const Var y = ops::expert_linear(tape, kernel, read, own_ids, matrices, experts);
    if (update.slices.empty()) return y;
    return p::add(tape, y, updated(tape, rows, own_ids, update, experts, y.shape()[1]));
  };
  const Var entered = product(in_, x_, one_for_each(tape, x, ids.dim(1)), gate_up, updates.gate_up);
  const Var left = product(out_, inner_, ops::swiglu(tape, swiglu_, entered), down, updates.down);
  return weighted_sum(tape, left, weights);
}

Var QuantizedExperts::updated(Tape& tape, const Var& rows, const Tensor& ids,
                              const ops::ExpertsUpdate<Var>& update, int64_t experts, int64_t out) const {
  const Var low = ops::expert_linear(tape, updates_, rows, ids, update.a, experts);
  ops::PartsOfRows all(tape, rows);
  int64_t first = 0;
  for (const auto& slice : update.slices) {
    const int64_t rank = slice.b.shape()[1];
    const Var scaled = p::scale(tape, p::narrow(tape, low, 1, first, rank), slice.scale);
    all.put(slice.column, ops::expert_linear(tape, updates_, scaled, ids, slice.b, experts));
    first += rank;
  }
  return all.finish(out);
}

bool QuantizedExperts::needed() const {
  const auto needs = [](const auto& quantizer) { return quantizer && quantizer->needs_rows(); };
  return needs(x_) || needs(inner_);
}

bool QuantizedExperts::tokens_count() const { return (x_ ? x_ : inner_)->all().tokens_count(); }

}  // namespace temper::channels
