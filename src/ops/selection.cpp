#include "ops/selection.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/rooms.h"
#include "base/text.h"
#include "ops/op_info.h"

namespace temper::ops {
namespace {

std::string grouped(int64_t number) {
  return number < 1000 ? std::to_string(number)
                       : fmt::format("{},{:03}", grouped(number / 1000), number % 1000);
}

std::string describe(const Tiling& tiling, const HardwareFacts& facts) {
  const std::string demand = fmt::format("{}, {} bits", tiling.name, grouped(tiling.scratch_bits));
  return facts.scratch_bytes == 0 ? demand
                                  : fmt::format("{} of {} of the {}", demand,
                                                grouped(8 * facts.scratch_bytes), facts.scratch_name);
}

std::string not_in_build(std::string_view provider) {
  return "is not in this build" + why_left_out("backends", provider);
}

bool is_registered(const std::vector<std::pair<std::string, const void*>>& kernels,
                   std::string_view provider) {
  return std::any_of(kernels.begin(), kernels.end(),
                     [&](const auto& each) { return each.first == provider; });
}

// The kernel that is better than this one for every use.
template <class Ask>
std::optional<Better> better_for_all(const Ask& ask, const void* kernel, const std::vector<size_t>& uses) {
  std::optional<Better> all;
  for (const size_t use : uses) {
    const std::optional<Better> one = ask(kernel, use);
    if (!one || (all && all->provider != one->provider)) return std::nullopt;
    all = one;
  }
  return all;
}

}  // namespace

std::string describe_shortfall(const Choice& choice) {
  const Shortfall& behind = choice.shortfall.value();
  if (behind.provider.empty())
    return fmt::format("{} runs on '{}', a composition: {}", choice.op, choice.provider, behind.reason);
  return fmt::format("{} runs on '{}', not on '{}', the best kernel for this hardware, which {}{}", choice.op,
                     choice.provider, behind.provider, behind.reason,
                     behind.cost.empty() ? "" : "; without it " + behind.cost);
}

Refusal choose_tiling(const std::vector<Tiling>& tilings, const HardwareFacts& facts, int* chosen) {
  const int64_t budget = facts.scratch_bytes * 8;
  const Tiling* smallest = nullptr;
  for (size_t i = 0; i < tilings.size(); ++i) {
    const Tiling& tiling = tilings[i];
    if (budget == 0 || tiling.scratch_bits <= budget) {
      *chosen = static_cast<int>(i);
      return std::nullopt;
    }
    if (smallest == nullptr || tiling.scratch_bits < smallest->scratch_bits) smallest = &tiling;
  }
  if (smallest == nullptr) return std::nullopt;
  return fmt::format("needs {} bits, the {} has {}", grouped(smallest->scratch_bits), facts.scratch_name,
                     grouped(budget));
}

Binder::Binder(OpsConfig config, HardwareFacts facts, std::string family)
    : config_(normalized(config)), facts_(std::move(facts)), family_(std::move(family)) {
  check_ops_config(config_, facts_);
  for (const auto& [pattern, values] : config_.overrides)
    for (const auto& [field, name] : values) unmatched_.emplace(pattern, field);
}

Binder::~Binder() = default;

std::vector<Binder::Candidate> Binder::candidates(const AnyOp& op, const std::vector<size_t>& uses) const {
  const NameQuery query{std::string(op.field), facts_, family_};
  std::vector<Candidate> all;
  for (const auto& added : family_table(family_).added)
    if (added.field == op.field && added.hardware == facts_.hardware && added.kernel != nullptr)
      all.push_back({.provider = added.name.provider,
                     .made = {added.kernel},
                     .family = true,
                     .refusal = not_by_default(query, added.name.provider, &added)});
  for (const auto& [provider, kernel] : op.registered)
    all.push_back({.provider = provider, .made = {kernel}});
  size_t place = 0;
  for (Candidate& candidate : all) {
    candidate.place = place++;
    if (!candidate.family) candidate.refusal = not_by_default(query, candidate.provider);
    ask(op, uses, candidate);
  }
  return all;
}

void Binder::ask(const AnyOp& op, const std::vector<size_t>& uses, Candidate& candidate) const {
  const KernelFacts kernel = op.facts(candidate.made.kernel);
  candidate.deterministic = kernel.deterministic;
  candidate.elsewhere = !kernel.composes && kernel.hardware != facts_.hardware;
  if (candidate.elsewhere)
    candidate.refusal = fmt::format("is for {}, this is {}", kernel.hardware, facts_.hardware);
  for (const size_t use : uses) {
    if (candidate.refusal) return;
    Answer answer = op.ask(candidate.made.kernel, use);
    candidate.refusal = std::move(answer.refusal);
    if (candidate.refusal || !answer.tilings || answer.tilings->empty()) continue;
    int chosen = 0;
    candidate.refusal = choose_tiling(*answer.tilings, facts_, &chosen);
    if (candidate.refusal) return;
    candidate.made.tiling = std::max(candidate.made.tiling, chosen);
    candidate.tilings.push_back(describe((*answer.tilings)[static_cast<size_t>(chosen)], facts_));
  }
  if (candidate.refusal) return;
  candidate.refusal = kernel.missing;
  if (kernel.missing) candidate.missing = "cannot run here: " + *kernel.missing;
  candidate.made.forward = find_pass(op, uses, "forward", kernel.needs.forward, candidate);
  candidate.made.backward = find_pass(op, uses, "backward", kernel.needs.backward, candidate);
}

// The kernel whose pass the candidate takes; null, and a refusal, where there is none.
const void* Binder::find_pass(const AnyOp& op, const std::vector<size_t>& uses, std::string_view pass,
                              const std::vector<std::string_view>& providers, Candidate& candidate) const {
  Candidate last;
  for (const std::string_view provider : providers) {
    if (candidate.refusal) return nullptr;
    const auto found = std::find_if(op.registered.begin(), op.registered.end(),
                                    [&](const auto& each) { return each.first == provider; });
    last = {.provider = std::string(provider)};
    if (found == op.registered.end()) {
      last.refusal = last.missing = not_in_build(provider);
      continue;
    }
    last.made.kernel = found->second;
    ask(op, uses, last);
    if (last.refusal) continue;
    candidate.passes.push_back(fmt::format("{} of {}", pass, provider));
    return found->second;
  }
  if (!providers.empty() && !candidate.refusal) {
    candidate.refusal = fmt::format("takes its {} from {}, which {}", pass, last.provider,
                                    last.missing ? *last.missing : *last.refusal);
    if (last.missing) candidate.missing = candidate.refusal;
  }
  return nullptr;
}

// What was chosen by default, beside the best kernel that the op has for these uses on such hardware: one
// that would run but for what is missing here, or one that this build does not have.
std::optional<Shortfall> Binder::shortfall(const AnyOp& op, const std::vector<size_t>& uses,
                                           const std::vector<Candidate>& candidates,
                                           const Candidate& chosen) const {
  const std::optional<Better> better = better_for_all(op.better, chosen.made.kernel, uses);
  const std::string cost(better ? better->cost : "");
  for (const Candidate& candidate : candidates)
    if (candidate.place < chosen.place && candidate.missing && candidate.deterministic)
      return Shortfall{candidate.provider, *candidate.missing, cost};
  if (better && !is_registered(op.registered, better->provider))
    return Shortfall{std::string(better->provider), not_in_build(better->provider), cost};
  return op.facts(chosen.made.kernel).composes ? behind_composition(op, uses, candidates) : std::nullopt;
}

// A composition runs where the hardware's kernels refuse. These know whether one that this build does not
// have would take the uses; where there is none, nobody does.
std::optional<Shortfall> Binder::behind_composition(const AnyOp& op, const std::vector<size_t>& uses,
                                                    const std::vector<Candidate>& candidates) const {
  bool is_alone = true;
  for (const Candidate& candidate : candidates) {
    if (candidate.elsewhere || op.facts(candidate.made.kernel).composes) continue;
    is_alone = false;
    const std::optional<Better> better = better_for_all(op.better, candidate.made.kernel, uses);
    if (better && !is_registered(op.registered, better->provider))
      return Shortfall{std::string(better->provider), not_in_build(better->provider), ""};
  }
  const auto& fields = hardware_table(facts_.hardware).fields;
  const auto known = fields.find(std::string(op.field));
  if (!is_alone || known == fields.end()) return std::nullopt;
  for (const KernelName& name : known->second.names) {
    const std::string why = why_left_out("backends", name.provider);
    if (name.min_capability <= facts_.compute_capability && !why.empty())
      return Shortfall{"", "the kernels for this hardware are not in this build" + why, ""};
  }
  return std::nullopt;
}

const Binder::Candidate* Binder::choose(const AnyOp& op, const Wanted& wanted,
                                        const std::vector<Candidate>& candidates, Choice& choice) const {
  choice.op = op.op;
  choice.field = std::string(op.field) + "_implementation";
  if (wanted.written) choice.written = wanted.name;
  choice.fallback = !wanted.written && !wanted.name.empty();
  const NameQuery query{std::string(op.field), facts_, family_, wanted.pattern};
  // A fallback is a provider; what a user writes is a name.
  const ResolvedName resolved = wanted.written ? resolve_name(query, wanted.name) : ResolvedName{wanted.name};

  const Candidate* chosen = nullptr;
  for (const Candidate& candidate : candidates) {
    Refusal refusal = candidate.refusal;
    if (!refusal && wanted.name.empty() && !candidate.deterministic)
      refusal = "is never a default: results differ in their last bits from run to run";
    const std::string reason = refusal.value_or("");
    const bool right =
        wanted.name.empty() || (candidate.provider == resolved.provider &&
                                (!wanted.written || candidate.family == (resolved.added != nullptr)));
    if (chosen == nullptr && right && !refusal) {
      chosen = &candidate;
      continue;
    }
    const bool passed_over = chosen == nullptr && right && !candidate.elsewhere;
    (passed_over ? choice.passed_over : choice.others).push_back({candidate.provider, reason});
  }
  if (chosen != nullptr) {
    choice.provider = chosen->provider;
    choice.passes = chosen->passes;
    for (const std::string& tiling : chosen->tilings)
      if (!tiling.empty() &&
          std::find(choice.tilings.begin(), choice.tilings.end(), tiling) == choice.tilings.end())
        choice.tilings.push_back(tiling);
    return chosen;
  }
  // What could be written instead: names that stand for a kernel that is here and accepts.
  std::set<std::string> able;
  for (const Candidate& candidate : candidates)
    if (!candidate.refusal) able.insert(candidate.provider);
  std::vector<std::string> possible;
  for (const std::string& name : possible_names(query))
    if (able.contains(resolve_name(query, name).provider)) possible.push_back(name);
  const std::string what =
      wanted.name == resolved.provider ? "" : fmt::format("stands for '{}', which ", resolved.provider);
  const std::string why = choice.passed_over.empty()
                              ? what + not_in_build(resolved.provider)
                              : what + fmt::format("cannot run: {}", choice.passed_over.front().reason);
  fail("[{}] {}={} {}. Set it to one of [{}]", place_of(wanted.pattern), choice.field, wanted.name, why,
       join(possible));
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

void Binder::bind_op(const AnyOp& op) {
  invariant(!result_.kernels_.contains(op.op),
            fmt::format("op {} was bound twice: name all signatures at once", op.op));
  const std::vector<std::string>& modules = op.modules;
  const std::string field(op.field);
  for (const std::string& module : modules) result_.uses_[op.op].insert(module);
  std::map<std::string, std::vector<size_t>> groups;  // uses by the override that names them; "" without one
  groups[""];
  for (size_t i = 0; i < modules.size(); ++i) {
    std::string pattern;
    override_of(modules[i], field, &pattern);
    groups[pattern].push_back(i);
  }
  for (const auto& [pattern, members] : groups) {
    const FieldValues& values = pattern.empty() ? config_.written : config_.overrides.at(pattern);
    const auto written = values.find(field);
    const bool is_written = written != values.end();
    const auto& best = config_.without_fallback;
    const bool falls_back = std::find(best.begin(), best.end(), field) == best.end();
    const Wanted wanted{is_written   ? written->second
                        : falls_back ? config_.fallback
                                     : "",
                        is_written, pattern};
    Choice choice;
    choice.modules = pattern;
    std::vector<Candidate> asked = candidates(op, members);
    const auto& first = config_.preferred.kernels;
    const auto preferred = first.find(field);
    if (wanted.name.empty() && preferred != first.end()) {
      // Only among those that would be tried anyway: what was measured does not bring a kernel in.
      const auto place = std::find_if(asked.begin(), asked.end(), [&](const Candidate& candidate) {
        return !candidate.refusal && candidate.deterministic && candidate.provider == preferred->second;
      });
      if (place != asked.end()) {
        choice.preferred = config_.preferred.because;
        std::rotate(asked.begin(), place, place + 1);
      }
    }
    const Candidate& chosen = *choose(op, wanted, asked, choice);
    if (wanted.name.empty()) choice.shortfall = shortfall(op, members, asked, chosen);
    const void* kernel = chosen.made.kernel;
    if (chosen.made.tiling > 0 || !chosen.passes.empty()) {
      result_.owned_.push_back(op.made_of(chosen.made));
      kernel = result_.owned_.back().get();
    }
    result_.providers_[kernel] = choice.provider;
    if (pattern.empty())
      result_.kernels_[op.op] = kernel;
    else
      for (const size_t member : members) overridden_[modules[member]][op.op] = kernel;
    // Where overrides name every use, what stands behind them is nobody's choice.
    if (!members.empty() || modules.empty()) result_.choices_.push_back(std::move(choice));
  }
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
  if (config_.strict) refuse_shortfalls();
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

void Binder::refuse_shortfalls() const {
  std::vector<std::string> lines;
  for (const Choice& choice : result_.choices_)
    if (choice.shortfall) lines.push_back(describe_shortfall(choice));
  if (lines.empty()) return;
  fail(
      "[model.strict_kernels] {}. Bring what is missing, write the kernels that you want under "
      "model.ops_implementation, or set model.strict_kernels to false",
      join(lines, "; "));
}

BoundOps::BoundOps() = default;
BoundOps::BoundOps(const BoundOps&) = default;
BoundOps::BoundOps(BoundOps&&) noexcept = default;
BoundOps& BoundOps::operator=(const BoundOps&) = default;
BoundOps& BoundOps::operator=(BoundOps&&) noexcept = default;
BoundOps::~BoundOps() = default;

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
