#include "ops/selection.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/text.h"
#include "ops/op_info.h"

namespace temper::ops {
namespace {

// What a field says for the uses of an op: a name in the configuration, a provider, or neither.
struct Wanted {
  std::string name;      // empty: the best
  bool written = false;  // by a user, not as a fallback for all fields that were left out
  NameQuery query;
};

[[noreturn]] void refuse_wanted(const Wanted& wanted, const std::string& provider,
                                const std::vector<Candidate>& candidates, const Choice& choice) {
  // What could be written instead: names that stand for a kernel that is here and accepts.
  std::set<std::string> able;
  for (const Candidate& candidate : candidates)
    if (!candidate.refusal) able.insert(candidate.provider);
  std::vector<std::string> possible;
  for (const std::string& name : possible_names(wanted.query))
    if (able.contains(resolve_name(wanted.query, name).provider)) possible.push_back(name);
  const std::string what = wanted.name == provider ? "" : fmt::format("means '{}', which ", provider);
  const std::string why = choice.passed_over.empty()
                              ? not_in_build(provider)
                              : fmt::format("cannot run: {}", choice.passed_over.front().reason);
  fail("[{}] {}={} {}{}. Set it to one of [{}]", place_of(wanted.query.pattern), choice.field, wanted.name,
       what, why, join(possible));
}

// The first candidate that is wanted and accepts, with what reports say of it and the others.
const Candidate& choose(const Wanted& wanted, const std::vector<Candidate>& candidates, Choice& choice) {
  // A fallback is a provider; what a user writes is a name.
  const ResolvedName resolved =
      wanted.written ? resolve_name(wanted.query, wanted.name) : ResolvedName{wanted.name};
  const Candidate* chosen = nullptr;
  for (const Candidate& candidate : candidates) {
    Refusal refusal = candidate.refusal;
    if (!refusal && wanted.name.empty() && !candidate.deterministic)
      refusal = "is never a default: results differ in their last bits from run to run";
    const bool right =
        wanted.name.empty() || (candidate.provider == resolved.provider &&
                                (!wanted.written || candidate.family == (resolved.added != nullptr)));
    if (chosen == nullptr && right && !refusal) {
      chosen = &candidate;
      continue;
    }
    const bool passed_over = chosen == nullptr && right && !candidate.elsewhere;
    (passed_over ? choice.passed_over : choice.others).push_back({candidate.provider, refusal.value_or("")});
  }
  if (chosen == nullptr) refuse_wanted(wanted, resolved.provider, candidates, choice);
  choice.provider = chosen->provider;
  choice.passes = chosen->passes;
  for (const std::string& tiling : chosen->tilings)
    if (!tiling.empty() &&
        std::find(choice.tilings.begin(), choice.tilings.end(), tiling) == choice.tilings.end())
      choice.tilings.push_back(tiling);
  return *chosen;
}

// Puts the preferred provider first, only among those that would be tried anyway: what was measured does not
// bring a kernel in. Returns whether it did.
bool prefer(const std::string& provider, std::vector<Candidate>& candidates) {
  const auto place = std::find_if(candidates.begin(), candidates.end(), [&](const Candidate& candidate) {
    return !candidate.refusal && candidate.deterministic && candidate.provider == provider;
  });
  if (place == candidates.end()) return false;
  std::rotate(candidates.begin(), place, place + 1);
  return true;
}

}  // namespace

Binder::Binder(OpsConfig config, HardwareFacts facts, std::string family)
    : config_(normalized(config)), facts_(std::move(facts)), family_(std::move(family)) {
  check_ops_config(config_, facts_);
  for (const auto& [pattern, values] : config_.overrides)
    for (const auto& [field, name] : values) unmatched_.emplace(pattern, field);
}

const FieldValues* Binder::override_of(const std::string& module, const std::string& field,
                                       std::string* pattern) {
  const FieldValues* found = nullptr;
  for (const auto& [candidate, values] : config_.overrides) {
    if (!module_matches(candidate, module)) continue;
    if (!values.contains(field)) continue;
    unmatched_.erase({candidate, field});
    if (found != nullptr)
      fail("[model.ops_implementation] overrides '{}' and '{}' both set {} of {}; make them disjoint",
           *pattern, candidate, field, module);
    found = &values;
    *pattern = candidate;
  }
  return found;
}

void Binder::bind_op(const UntypedOp& op) {
  invariant(!result_.kernels_.contains(op.op),
            fmt::format("op {} was bound twice: name all signatures at once", op.op));
  for (const std::string& module : op.modules) result_.uses_[op.op].insert(module);
  std::map<std::string, std::vector<size_t>> groups;  // uses by the override that names them; "" without one
  groups[""];
  for (size_t i = 0; i < op.modules.size(); ++i) {
    std::string pattern;
    override_of(op.modules[i], std::string(op.field), &pattern);
    groups[pattern].push_back(i);
  }
  for (const auto& [pattern, uses] : groups) bind_group(op, pattern, uses);
}

void Binder::bind_group(const UntypedOp& op, const std::string& pattern, const std::vector<size_t>& uses) {
  const std::string field(op.field);
  const FieldValues& values = pattern.empty() ? config_.written : config_.overrides.at(pattern);
  const auto written = values.find(field);
  const auto& best = config_.without_fallback;
  Wanted wanted{"", written != values.end(), {field, facts_, family_, pattern}};
  if (wanted.written)
    wanted.name = written->second;
  else if (std::find(best.begin(), best.end(), field) == best.end())
    wanted.name = config_.fallback;
  Choice choice;
  choice.op = op.op;
  choice.field = field + "_implementation";
  choice.modules = pattern;
  if (wanted.written) choice.written = wanted.name;
  choice.fallback = !wanted.written && !wanted.name.empty();

  const Candidates kernels(op, uses, facts_);
  std::vector<Candidate> asked = kernels.find(family_);
  const auto preferred = config_.preferred.kernels.find(field);
  if (wanted.name.empty() && preferred != config_.preferred.kernels.end() && prefer(preferred->second, asked))
    choice.preferred = config_.preferred.because;
  const Candidate& chosen = choose(wanted, asked, choice);
  if (wanted.name.empty()) choice.shortfall = kernels.shortfall(asked, chosen);
  const void* kernel = chosen.parts.kernel;
  if (chosen.parts.tiling > 0 || !chosen.passes.empty()) {
    result_.owned_.push_back(op.complete(chosen.parts));
    kernel = result_.owned_.back().get();
  }
  result_.providers_[kernel] = choice.provider;
  if (pattern.empty())
    result_.kernels_[op.op] = kernel;
  else
    for (const size_t use : uses) overridden_[op.modules[use]][op.op] = kernel;
  // Where overrides name every use, the choice behind them is not used.
  if (!uses.empty() || op.modules.empty()) result_.choices_.push_back(std::move(choice));
}

BoundOps Binder::finish() {
  for (const Collected& each : std::exchange(collected_, {})) each.bind(*this);
  for (const auto& [pattern, field] : unmatched_) {
    if (!has_op(field))
      fail("[{}] {}_implementation: no op of this version reads it; leave it out", place_of(pattern), field);
    fail(
        "[{}] names no module that has {}; modules are named as in 'layers.0.mlp', ranges as in "
        "'layers.0-3.*'",
        place_of(pattern), field);
  }
  for (const auto& [module, kernels] : overridden_) {
    auto ops = std::make_shared<BoundOps>();
    ops->kernels_ = result_.kernels_;
    ops->providers_ = result_.providers_;
    for (const auto& [op, kernel] : kernels) ops->kernels_[op] = kernel;
    result_.modules_.emplace(module, std::move(ops));
  }
  if (config_.strict) refuse_shortfalls(result_.choices_);
  std::set<std::string> used;
  for (const Choice& choice : result_.choices_) used.insert(choice.field);
  for (const auto& [field, name] : config_.written) {
    if (used.contains(field + "_implementation")) continue;
    // Not used here, but as wrong as anywhere.
    resolve_name({field, facts_, family_}, name);
    Choice choice;
    choice.field = field + "_implementation";
    choice.written = name;
    result_.choices_.push_back(std::move(choice));
  }
  std::stable_sort(result_.choices_.begin(), result_.choices_.end(),
                   [](const Choice& a, const Choice& b) { return a.field < b.field; });
  return std::move(result_);
}

void BoundOps::check_use(std::string_view op, std::string_view module) const {
  const auto found = uses_.find(op);
  invariant(found != uses_.end() && found->second.contains(module),
            fmt::format("op {} was not bound for a module '{}' when the model was built", op, module));
}

std::vector<ModuleKernel> BoundOps::bindings() const {
  std::vector<ModuleKernel> all;
  for (const auto& [op, modules] : uses_)
    for (const std::string& module : modules) {
      const auto found = modules_.find(module);
      const BoundOps& own = found == modules_.end() ? *this : *found->second;
      const void* kernel = own.kernels_.at(op);
      all.push_back({module, std::string(op), own.providers_.at(kernel), kernel});
    }
  return all;
}

BoundOps BoundOps::outlined() const {
  BoundOps counted;
  counted.choices_ = choices_;
  counted.uses_ = uses_;
  for (const auto& [op, kernel] : kernels_) {
    counted.owned_.push_back(op_infos().find(op)->outlined(kernel));
    counted.kernels_[op] = counted.owned_.back().get();
    counted.providers_[counted.kernels_[op]] = providers_.at(kernel);
  }
  for (const auto& [module, kernels] : modules_)
    counted.modules_.emplace(module, std::make_shared<const BoundOps>(kernels->outlined()));
  return counted;
}

}  // namespace temper::ops
