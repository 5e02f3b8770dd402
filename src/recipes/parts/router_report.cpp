#include "recipes/parts/router_report.h"

#include <fmt/format.h>

#include "base/text.h"

namespace temper::recipes {

void add_routers(const training::StepResult& result, double balance_factor, Json::Object& values,
                 reports::TensorBoardWriter::Scalars& scalars) {
  if (result.routers.empty()) return;
  if (balance_factor > 0) {
    values.emplace_back("balance_loss", result.balance_loss / balance_factor);
    scalars.emplace_back("train/balance_loss", result.balance_loss / balance_factor);
  }
  Json::Array loads, entropies, idle;
  for (const training::RouterLoad& load : result.routers) {
    const double largest = load.largest_over_mean();
    loads.emplace_back(largest);
    entropies.emplace_back(load.entropy);
    idle.emplace_back(load.idle());
    scalars.emplace_back(fmt::format("experts/load/layer {}", load.layer), largest);
    scalars.emplace_back(fmt::format("experts/entropy/layer {}", load.layer), load.entropy);
    scalars.emplace_back(fmt::format("experts/idle/layer {}", load.layer), static_cast<double>(load.idle()));
  }
  values.emplace_back("expert_load", std::move(loads));
  values.emplace_back("router_entropy", std::move(entropies));
  values.emplace_back("idle_experts", std::move(idle));
}

std::vector<std::string> IdleExperts::after(const std::vector<training::RouterLoad>& loads) {
  constexpr size_t kNamed = 8;
  steps_.resize(loads.size());
  std::vector<std::string> warnings;
  for (size_t i = 0; i < loads.size(); ++i) {
    const std::vector<int64_t>& counts = loads[i].counts;
    steps_[i].resize(counts.size());
    std::vector<std::string> experts;
    for (size_t e = 0; e < counts.size(); ++e) {
      steps_[i][e] = counts[e] == 0 ? steps_[i][e] + 1 : 0;
      if (steps_[i][e] == kSteps) experts.push_back(std::to_string(e));
    }
    if (experts.empty()) continue;
    const size_t more = experts.size() - std::min(experts.size(), kNamed);
    const bool one = experts.size() == 1;
    experts.resize(std::min(experts.size(), kNamed));
    warnings.push_back(
        fmt::format("layer {}: expert{} {}{} got no token for {} steps; train.router.balance_loss or "
                    "train.router.bias_rate "
                    "spreads tokens more evenly",
                    loads[i].layer, one ? "" : "s", join(experts),
                    more > 0 ? fmt::format(" and {} more", more) : "", kSteps));
  }
  return warnings;
}

}  // namespace temper::recipes
