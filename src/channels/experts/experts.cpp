#include "channels/experts/experts.h"

#include <algorithm>

#include "channels/experts/expert_router.h"
#include "channels/experts/quantized_experts.h"
#include "channels/experts/token_exchange.h"
#include "layers/glue.h"
#include "layers/linear.h"
#include "ops/lora_moe_experts/lora_moe_experts.h"
#include "primitives/primitives.h"

namespace temper::channels {
namespace {

using layers::Pass;
using layers::RouterTrace;

class BoundExperts : public layers::BoundChannel {
 public:
  BoundExperts(const ExpertsConfig& config, const layers::Binding& binding,
               std::unique_ptr<layers::BoundChannel> shared, const std::string& shared_gate)
      : config_(config),
        router_(binding, config),
        gate_up_(binding.weight(config.module + ".experts.gate_up.weight")),
        down_(binding.weight(config.module + ".experts.down.weight")),
        experts_(binding.kernel<ops::MoeExperts>(config.module)),
        adapted_(binding.kernel<ops::LoraMoeExperts>(config.module)),
        shared_(std::move(shared)),
        ranks_(binding.ranks.expert) {
    if (!shared_gate.empty()) shared_gate_.emplace(binding, shared_gate, false);
    if (config.biases) {
      gate_up_bias_ = binding.weight(config.module + ".experts.gate_up.bias");
      down_bias_ = binding.weight(config.module + ".experts.down.bias");
      no_down_bias_ = binding.added_elsewhere(down_bias_);
    }
    if (QuantizedExperts::wanted(binding, config)) quantized_.emplace(binding, config);
  }

  Var forward(Tape& tape, const Var& x, const Pass& pass) const override {
    ops::MoeRouter::Routes routes = router_.route(tape, x, pass);
    // Tokens of passes that only keep step weigh nothing, so that observers do not count them.
    if (quantized_ && !quantized_->tokens_count())
      routes.weights = primitives::scale(tape, routes.weights, 0);
    if (ranks_ != nullptr) return choose_elsewhere(tape, x, routes, pass);
    const Var y = choose(tape, x, routes, pass.rows.all());
    return shared_ ? layers::residual_add(tape, shared(tape, x, pass), y) : y;
  }
  const layers::BoundWeight* choice_bias() const override { return router_.choice_bias(); }
  bool batches_on_device() const override { return asks_host().empty(); }
  std::string_view asks_host() const override {
    if (router_.asks_host()) return ops::MoeRouter::kName;
    if (!experts_->repeats) return ops::MoeExperts::kName;
    if (!adapted_->repeats) return ops::LoraMoeExperts::kName;
    if (quantized_ && quantized_->needed() && !quantized_->repeats()) return ops::ExpertLinear::kName;
    return shared_ ? shared_->asks_host() : std::string_view();
  }

 private:
  bool adapts(const layers::AdapterRows& rows) const {
    return update_of(rows, gate_up_) != nullptr || update_of(rows, down_) != nullptr;
  }

  // The model's own experts.
  Var compute_own(Tape& tape, const Var& x, const Tensor& ids, const Var& weights) const {
    return quantized_ && quantized_->needed()
               ? (*quantized_)(tape, x, ids, weights, gate_up_.matrix(tape).value, down_.matrix(tape).value)
               : ops::moe_experts(tape, experts_, x, ids, weights, own(tape));
  }

  // Of rows of one adapter.
  Var compute(Tape& tape, const layers::AdapterRows& rows, const Var& x, const Tensor& ids,
              const Var& weights) const {
    if (!adapts(rows)) return compute_own(tape, x, ids, weights);
    if (quantized_ && quantized_->needed())
      return quantized_->adapted(tape, x, ids, weights, gate_up_.matrix(tape).value, down_.matrix(tape).value,
                                 {update_in(tape, rows, gate_up_), update_in(tape, rows, down_)});
    return ops::lora_moe_experts(tape, adapted_, x, ids, weights,
                                 {gate_up_.matrix(tape), update_in(tape, rows, gate_up_)},
                                 {down_.matrix(tape), update_in(tape, rows, down_)});
  }

  Var shared(Tape& tape, const Var& x, const Pass& pass) const {
    const Var y = shared_->forward(tape, x, pass);
    return shared_gate_ ? layers::sigmoid_gated(tape, y, (*shared_gate_)(tape, x, pass.rows)) : y;
  }

  // On the ranks that have them, for the rows of all ranks: of each adapter apart, too. Shared experts
  // compute while tokens travel.
  Var choose_elsewhere(Tape& tape, const Var& x, const ops::MoeRouter::Routes& routes,
                       const Pass& pass) const {
    const std::vector<const layers::Adapter*>& all = pass.adapters;
    const bool apart = all.size() > 1 && std::any_of(all.begin(), all.end(), [&](const auto* adapter) {
                         return adapts({.adapter = adapter});
                       });
    std::vector<TokenExchange::Kind> kinds;
    if (apart)
      for (const layers::AdapterRows& rows : pass.rows.all())
        kinds.push_back({static_cast<int32_t>(std::find(all.begin(), all.end(), rows.adapter) - all.begin()),
                         static_cast<int32_t>(rows.rows)});
    const TokenExchange exchange(*ranks_, routes.ids, config_.routing.experts, kinds);
    const TokenExchange::OnTheirWay sent = exchange.send(tape, x, routes.weights);
    const Var shared_output = shared_ ? shared(tape, x, pass) : Var();
    const auto [rows, weights] = exchange.receive(tape, sent);
    const auto with_shared = [&, &rows = rows](const Var& y) {
      const Var all_of_it = exchange.combine(tape, y);
      return shared_ ? layers::residual_add(tape, shared_output, all_of_it) : all_of_it;
    };
    const int64_t count = rows.shape()[0];
    if (!apart || count == 0) {
      const layers::Adapter* const adapter = all.empty() || count == 0 ? nullptr : all.front();
      return with_shared(compute(tape, {.adapter = adapter, .rows = count}, rows, exchange.ids(), weights));
    }
    Var y = tape.constant(
        Tensor::zeros(rows.shape(), rows.value.dtype(), MemoryTag::kActivations, rows.value.device()));
    for (size_t kind = 0; kind < exchange.by_kind().size(); ++kind) {
      const auto& [own, experts] = exchange.by_kind()[kind];
      if (own.empty()) continue;
      const primitives::ChosenRows chosen(Tensor::from(own), count, true);
      const Tensor ids =
          Tensor::from(std::span<const int32_t>(experts), {std::ssize(own), 1}).on(rows.value.device());
      const Var part = compute(tape, {.adapter = all[kind], .rows = std::ssize(own)},
                               primitives::gather_rows(tape, rows, chosen), ids,
                               primitives::gather_rows(tape, weights, chosen));
      y = primitives::add(tape, y, primitives::sum_rows(tape, part, chosen));
    }
    return with_shared(y);
  }

  // The experts of each adapter's rows apart, where one changes them.
  Var choose(Tape& tape, const Var& x, const ops::MoeRouter::Routes& routes,
             std::span<const layers::AdapterRows> all) const {
    if (std::none_of(all.begin(), all.end(), [&](const auto& rows) { return adapts(rows); }))
      return compute_own(tape, x, routes.ids, routes.weights);
    const std::vector<Var> parts = layers::parts_of(tape, x, all),
                           weights = layers::parts_of(tape, routes.weights, all);
    std::vector<Var> results;
    int64_t first = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      const Tensor ids = routes.ids.narrow(0, first, all[i].rows);
      results.push_back(compute(tape, all[i], parts[i], ids, weights[i]));
      first += all[i].rows;
    }
    return results.size() == 1 ? results.front() : primitives::concat_first(tape, results);
  }

  ops::ExpertWeights own(Tape& tape) const {
    return {gate_up_.matrix(tape), down_.matrix(tape), gate_up_bias_.leaf(tape),
            no_down_bias_.defined() ? tape.constant(no_down_bias_) : down_bias_.leaf(tape), config_.form};
  }

  ExpertsConfig config_;
  ExpertRouter router_;
  layers::BoundWeight gate_up_, down_, gate_up_bias_, down_bias_;
  Tensor no_down_bias_;  // zeros, where another tensor rank adds it; undefined: it is added here
  ops::Bound<ops::MoeExperts> experts_;
  ops::Bound<ops::LoraMoeExperts> adapted_;
  std::optional<QuantizedExperts> quantized_;  // where what experts read is rounded
  std::unique_ptr<layers::BoundChannel> shared_;
  collectives::Group* ranks_;  // that divide the experts; null: all are here
  std::optional<layers::Linear> shared_gate_;
};

class Experts : public layers::Channel {
 public:
  Experts(const ExpertsConfig& config, std::shared_ptr<const layers::Channel> shared, std::string shared_gate)
      : c_(config), shared_(std::move(shared)), shared_gate_(std::move(shared_gate)) {}

  void declare(layers::WeightScope& weights) const override {
    const int64_t experts = c_.routing.experts;
    const std::string& module = c_.stacked_module.empty() ? c_.module : c_.stacked_module;
    weights.router(c_.module + ".gate.weight", {"experts", "hidden", c_.hidden, false},
                   {c_.module + "." + c_.router, experts}, module + "." + c_.router);
    if (c_.biases)
      weights.vector(c_.module + ".gate.bias", "experts", {{c_.module + "." + c_.router + ".bias", experts}});
    if (c_.correction_bias)
      weights.float32_vector(c_.module + ".gate.correction_bias", "experts",
                             {c_.module + ".gate.e_score_correction_bias", experts}, true);
    declare_matrices(weights, module);
    if (shared_) shared_->declare(weights);
    if (!shared_gate_.empty())
      weights.linear(shared_gate_, {"one", "hidden", c_.hidden, false}, {{shared_gate_, 1}});
  }

  std::shared_ptr<const layers::Channel> on_tensor_ranks(int tensor) const override {
    ExpertsConfig own = c_;
    own.width = div_exact(c_.width, tensor);
    return experts(own, shared_ ? shared_->on_tensor_ranks(tensor) : nullptr, shared_gate_);
  }

  void name_ops(layers::OpScope& ops) const override {
    const int64_t experts = c_.routing.experts, top_k = c_.routing.top_k;
    const DType routed = c_.float32_router || ops.routers().float32 ? DType::kF32 : ops.dtype();
    ops.use<ops::Linear>(c_.module + ".gate", {routed, c_.hidden, experts, c_.biases});
    ops.use<ops::MoeRouter>(c_.module, {routed, experts, top_k});
    // Of experts that ranks divide each has some, and a row for each choice (TokenExchange).
    const int64_t own = experts / ops.expert_ranks(), chosen = ops.expert_ranks() > 1 ? 1 : top_k;
    ops.use<ops::MoeExperts>(c_.module,
                             {ops.dtype(), c_.hidden, c_.width, own, chosen, c_.biases, c_.form.clamped});
    ops.use<ops::LoraMoeExperts>(c_.module, {ops.dtype(), c_.hidden, c_.width, own, chosen});
    if (QuantizedExperts::wanted(ops, c_)) QuantizedExperts::name_ops(ops, c_);
    if (shared_) shared_->name_ops(ops);
    if (!shared_gate_.empty()) ops.linear(shared_gate_, c_.hidden, 1, false);
  }

  std::unique_ptr<layers::BoundChannel> bind(const layers::Binding& binding) const override {
    return std::make_unique<BoundExperts>(c_, binding, shared_ ? shared_->bind(binding) : nullptr,
                                          shared_gate_);
  }

  // Of the experts that are chosen.
  double flops(int64_t tokens) const override {
    const int64_t each =
        c_.routing.experts + 3 * c_.routing.top_k * c_.width + (shared_gate_.empty() ? 0 : 1);
    return 2 * static_cast<double>(tokens) * static_cast<double>(c_.hidden * each) +
           (shared_ ? shared_->flops(tokens) : 0);
  }

  const ops::Routing* routing() const override { return &c_.routing; }

  Json::Object describe() const override {
    const ops::Routing& r = c_.routing;
    Json::Object all{{"moe_intermediate_size", c_.width},
                     {"num_experts", r.experts},
                     {"num_experts_per_tok", r.top_k},
                     {"scores of experts", r.sigmoid ? "sigmoid" : "softmax"},
                     {"n_group", r.groups},
                     {"topk_group", r.top_groups},
                     {"norm_topk_prob", r.normalize},
                     {"routed_scaling_factor", static_cast<double>(r.scaling)},
                     {"router in float32", c_.float32_router},
                     {"correction bias of experts", c_.correction_bias}};
    if (c_.biases) all.emplace_back("biases of experts and their router", true);
    if (c_.form.clamped) {
      all.emplace_back("swiglu_alpha", static_cast<double>(c_.form.alpha));
      all.emplace_back("swiglu_limit", static_cast<double>(c_.form.limit));
    }
    if (shared_)
      for (auto& [key, value] : shared_->describe()) all.emplace_back("shared experts: " + key, value);
    if (!shared_gate_.empty()) all.emplace_back("gate of the shared expert", true);
    return all;
  }

 private:
  void declare_matrices(layers::WeightScope& weights, const std::string& module) const {
    const int64_t experts = c_.routing.experts;
    const WeightAxis widths = WeightAxis::of_experts("experts*expert_width", 1),
                     outputs = WeightAxis::of_experts("experts*hidden"),
                     width = WeightAxis::divided("expert_width");
    if (c_.alternating_in_files) {
      weights.transposed_experts(c_.module + ".experts.gate_up", {widths, "hidden", c_.hidden, c_.biases},
                                 experts, {module + ".experts.gate_up_proj", experts * 2 * c_.width}, true);
      weights.transposed_experts(c_.module + ".experts.down", {outputs, width, c_.width, c_.biases}, experts,
                                 {module + ".experts.down_proj", experts * c_.hidden}, false);
      return;
    }
    std::vector<WeightSource> in, out;
    for (int64_t e = 0; e < experts; ++e) {
      const std::string expert = fmt::format("{}.experts.{}.", c_.module, e);
      in.push_back({expert + c_.gate, c_.width});
      in.push_back({expert + c_.up, c_.width});
      out.push_back({expert + c_.down, c_.hidden});
    }
    weights.experts(c_.module + ".experts.gate_up", {widths, "hidden", c_.hidden, false}, experts, in,
                    module + ".experts.gate_up_proj", c_.transposes_stacked);
    weights.experts(c_.module + ".experts.down", {outputs, width, c_.width, false}, experts, out,
                    module + ".experts.down_proj", c_.transposes_stacked);
  }

  ExpertsConfig c_;
  std::shared_ptr<const layers::Channel> shared_;
  std::string shared_gate_;
};

}  // namespace

std::shared_ptr<const layers::Channel> experts(const ExpertsConfig& config,
                                               std::shared_ptr<const layers::Channel> shared,
                                               const std::string& shared_gate) {
  return std::make_shared<Experts>(config, std::move(shared), shared_gate);
}

}  // namespace temper::channels
