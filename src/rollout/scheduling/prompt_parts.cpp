#include "rollout/scheduling/prompt_parts.h"

#include <algorithm>
#include <numeric>

namespace temper::rollout {
namespace {

// Kernels of mixers with slots compute this many tokens of a part at once, counted from its first, so parts
// of prompts begin at multiples of it: their sums are then those of the whole prompt.
constexpr int64_t kPartOfSlots = 64;

}  // namespace

bool PromptParts::decodes(const Sequence& sequence) const {
  return sequence.computed >= sequence.prompt() && (!decodes_as_prompts || sequence.left() == 1);
}

int64_t PromptParts::next_part(const Sequence& sequence, int64_t most) const {
  const int64_t whole = sequence.prompt() - sequence.computed;
  if (!has_slots) return std::min(most, decodes_as_prompts ? sequence.left() : whole);
  int64_t end = sequence.computed + std::min(most, whole);
  const int64_t boundary = prefix_cache ? last_boundary(sequence) : 0;
  if (sequence.computed < boundary) end = std::min(end, boundary);
  if (end < sequence.prompt()) end = end / kPartOfSlots * kPartOfSlots;
  return std::max<int64_t>(0, end - sequence.computed);
}

int64_t PromptParts::last_boundary(const Sequence& sequence) const {
  const int64_t step = std::lcm(kPartOfSlots, page_tokens);
  return (sequence.prompt() - 1) / step * step;
}

// What is computed ahead may not be known yet.
int64_t PromptParts::shareable(const Sequence& sequence) const {
  const bool answers = decodes_as_prompts || continues_answers;
  return std::min(sequence.computed, answers ? sequence.length() : sequence.prompt());
}

}  // namespace temper::rollout
