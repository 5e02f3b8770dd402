#include "ops/candidates.h"

#include <algorithm>

#include "base/parts/rooms.h"
#include "ops/resolve.h"

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

// Null where there is none.
const void* find_registered(const UntypedOp& op, std::string_view provider) {
  for (const auto& [name, kernel] : op.registered)
    if (name == provider) return kernel;
  return nullptr;
}

}  // namespace

std::string not_in_build(std::string_view provider) {
  return "is not in this build" + why_left_out("backends", provider);
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

std::vector<Candidate> Candidates::find(const std::string& family) const {
  const NameQuery query{std::string(op_.field), facts_, family};
  std::vector<Candidate> all;
  for (const auto& added : family_table(family).added)
    if (added.field == op_.field && added.hardware == facts_.hardware && added.kernel != nullptr)
      all.push_back({.provider = added.name.provider,
                     .parts = {added.kernel},
                     .family = true,
                     .refusal = not_by_default(query, added.name.provider, &added)});
  for (const auto& [provider, kernel] : op_.registered)
    all.push_back({.provider = provider, .parts = {kernel}, .refusal = not_by_default(query, provider)});
  size_t place = 0;
  for (Candidate& candidate : all) {
    candidate.place = place++;
    ask(candidate);
  }
  return all;
}

void Candidates::ask(Candidate& candidate) const {
  const KernelFacts kernel = op_.facts(candidate.parts.kernel);
  candidate.deterministic = kernel.deterministic;
  candidate.elsewhere = !kernel.composes && kernel.hardware != facts_.hardware;
  if (candidate.elsewhere)
    candidate.refusal = fmt::format("is for {}, this is {}", kernel.hardware, facts_.hardware);
  for (const size_t use : uses_) {
    if (candidate.refusal) return;
    Answer answer = op_.ask(candidate.parts.kernel, use);
    candidate.refusal = std::move(answer.refusal);
    if (candidate.refusal || !answer.tilings || answer.tilings->empty()) continue;
    int chosen = 0;
    candidate.refusal = choose_tiling(*answer.tilings, facts_, &chosen);
    if (candidate.refusal) return;
    candidate.parts.tiling = std::max(candidate.parts.tiling, chosen);
    candidate.tilings.push_back(describe((*answer.tilings)[static_cast<size_t>(chosen)], facts_));
  }
  if (candidate.refusal) return;
  candidate.refusal = kernel.missing;
  if (kernel.missing) candidate.missing = "cannot run here: " + *kernel.missing;
  candidate.parts.forward = find_pass("forward", kernel.needs.forward, candidate);
  candidate.parts.backward = find_pass("backward", kernel.needs.backward, candidate);
}

// The kernel whose pass the candidate takes; null, and a refusal, where there is none.
const void* Candidates::find_pass(std::string_view pass, const std::vector<std::string_view>& providers,
                                  Candidate& candidate) const {
  Candidate last;
  for (const std::string_view provider : providers) {
    if (candidate.refusal) return nullptr;
    const void* found = find_registered(op_, provider);
    last = {.provider = std::string(provider), .parts = {found}};
    if (found == nullptr) {
      last.refusal = last.missing = not_in_build(provider);
      continue;
    }
    ask(last);
    if (last.refusal) continue;
    candidate.passes.push_back(fmt::format("{} of {}", pass, provider));
    return found;
  }
  if (!providers.empty() && !candidate.refusal) {
    candidate.refusal = fmt::format("takes its {} from {}, which {}", pass, last.provider,
                                    last.missing ? *last.missing : *last.refusal);
    if (last.missing) candidate.missing = candidate.refusal;
  }
  return nullptr;
}

std::optional<Shortfall> Candidates::shortfall(const std::vector<Candidate>& found,
                                               const Candidate& chosen) const {
  const std::optional<Better> better = better_for_all(chosen.parts.kernel);
  const std::string cost(better ? better->cost : "");
  for (const Candidate& candidate : found)
    if (candidate.place < chosen.place && candidate.missing && candidate.deterministic)
      return Shortfall{candidate.provider, *candidate.missing, cost};
  if (auto absent = not_built(better, cost)) return absent;
  return op_.facts(chosen.parts.kernel).composes ? behind_composition(found) : std::nullopt;
}

// A composition runs where the hardware's kernels refuse. These know whether one that this build does not
// have would take the uses; where there is none, this is not known.
std::optional<Shortfall> Candidates::behind_composition(const std::vector<Candidate>& found) const {
  bool is_alone = true;
  for (const Candidate& candidate : found) {
    if (candidate.elsewhere || op_.facts(candidate.parts.kernel).composes) continue;
    is_alone = false;
    if (auto absent = not_built(better_for_all(candidate.parts.kernel), "")) return absent;
  }
  const auto& fields = hardware_table(facts_.hardware).fields;
  const auto known = fields.find(std::string(op_.field));
  if (!is_alone || known == fields.end()) return std::nullopt;
  for (const KernelName& name : known->second.names) {
    const std::string why = why_left_out("backends", name.provider);
    if (name.min_capability <= facts_.compute_capability && !why.empty())
      return Shortfall{"", "the kernels for this hardware are not in this build" + why, ""};
  }
  return std::nullopt;
}

std::optional<Shortfall> Candidates::not_built(const std::optional<Better>& better,
                                               std::string_view cost) const {
  if (!better || find_registered(op_, better->provider) != nullptr) return std::nullopt;
  return Shortfall{std::string(better->provider), not_in_build(better->provider), std::string(cost)};
}

// The kernel that is better than this one for every use.
std::optional<Better> Candidates::better_for_all(const void* kernel) const {
  std::optional<Better> all;
  for (const size_t use : uses_) {
    const std::optional<Better> one = op_.better(kernel, use);
    if (!one || (all && all->provider != one->provider)) return std::nullopt;
    all = one;
  }
  return all;
}

}  // namespace temper::ops
