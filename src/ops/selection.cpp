#include "ops/selection.h"

#include <algorithm>

#include "base/text.h"

namespace temper::ops {

std::vector<BoundOps::Choice> BoundOps::choices() const {
  std::vector<Choice> all;
  for (const auto& [name, bound] : bound_) all.push_back(bound.choice);
  return all;
}

std::string BoundOps::report() const {
  std::string out;
  for (const Choice& choice : choices()) {
    out += fmt::format("{:<34} {:<8} ({})\n", choice.field, choice.provider,
                       choice.written ? "as written" : "default");
    for (const std::string& refusal : choice.refused) out += fmt::format("{:<34} not {}\n", "", refusal);
  }
  return out;
}

void Binder::choose(std::string_view op, std::string_view field, const std::vector<Candidate>& candidates) {
  BoundOps::Choice choice{std::string(op), fmt::format("{}_implementation", field), "", false, {}};
  const auto written = config_.written.find(choice.field);
  choice.written = written != config_.written.end();
  const std::string wanted = choice.written ? written->second : config_.fallback;
  config_.written.erase(choice.field);

  const Candidate* chosen = nullptr;
  std::vector<std::string> possible;
  for (const Candidate& candidate : candidates) {
    if (!candidate.refusal) possible.push_back(candidate.provider);
    if (!wanted.empty() && candidate.provider != wanted) continue;
    if (candidate.refusal) choice.refused.push_back(fmt::format("{}: {}", candidate.provider, *candidate.refusal));
    else if (chosen == nullptr) chosen = &candidate;
  }
  if (chosen == nullptr) {
    std::sort(possible.begin(), possible.end());
    const std::string why = choice.refused.empty() ? "is not a registered backend" : "cannot run: " + choice.refused[0];
    fail("[model.ops_implementation] {}={} {}. Set it to one of [{}]", choice.field, wanted, why, join(possible));
  }
  choice.provider = chosen->provider;
  result_.bound_[op] = {chosen->kernel, std::move(choice)};
}

BoundOps Binder::finish() {
  if (!config_.written.empty()) {
    std::vector<std::string> fields;
    for (const auto& choice : result_.choices()) fields.push_back(choice.field);
    const std::string& unknown = config_.written.begin()->first;
    const std::string nearest = nearest_name(unknown, fields);
    fail("[model.ops_implementation] unknown field '{}'{}; this model has [{}]", unknown,
         nearest.empty() ? "" : fmt::format(", did you mean '{}'?", nearest), join(fields));
  }
  return std::move(result_);
}

}  // namespace temper::ops
