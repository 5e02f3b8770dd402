// The part of the engine that finds beginnings of texts that were computed before.
#include <algorithm>
#include <numeric>

#include "rollout/sequence.h"

namespace temper::rollout {
namespace {

// Kernels of mixers with slots compute that many tokens of a part at once, counted from its first, so parts
// of prompts begin at multiples of it: their sums are then those of the whole prompt.
constexpr int64_t kPartOfSlots = 64;

}  // namespace

PagePool::Key Engine::key_of(const Sequence& sequence, int64_t page) const {
  const auto begin = sequence.tokens.begin() + page * options_.page_tokens;
  return {
      sequence.last_serial, model_version_, sequence.adapter_version, {begin, begin + options_.page_tokens}};
}

// The last end of a page at which a state may be kept that other requests continue; 0: there is none.
int64_t Engine::last_boundary(const Sequence& sequence) const {
  const int64_t step = std::lcm(kPartOfSlots, options_.page_tokens);
  return (sequence.prompt() - 1) / step * step;
}

// Takes over pages that hold the beginning of the text, but its last token, whose logits are needed. Returns
// how many tokens it found.
int64_t Engine::find_prefix(Sequence& sequence) {
  if (!options_.prefix_cache || sequence.request.record_experts) return 0;
  const int64_t size = options_.page_tokens;
  int64_t most = (sequence.length() - 1) / size;
  // States of slots are there only where one was kept.
  int64_t with_state = 0;
  uint64_t state_serial = 0;
  int32_t state = PagePool::kNone;
  std::vector<int32_t> pages;
  std::vector<uint64_t> serials;
  for (int64_t i = 0; i < most; ++i) {
    const PagePool::Found* const found = pool_.find(key_of(sequence, i));
    if (found == nullptr) break;
    pages.push_back(found->page);
    serials.push_back(sequence.last_serial = found->serial);
    for (const auto& [serial, slot] : kept_slots_)
      if (serial == found->serial) {
        with_state = i + 1;
        state_serial = serial;
        state = slot;
      }
  }
  if (has_slots_) pages.resize(static_cast<size_t>(with_state));
  for (const int32_t page : pages) pool_.keep(page);
  sequence.pages = pages;
  sequence.published = std::ssize(pages);
  sequence.last_serial = pages.empty() ? 0 : has_slots_ ? state_serial : serials.back();
  sequence.computed = sequence.published * size;
  if (has_slots_ && state != PagePool::kNone) states_.copy_slot(state, sequence.slot);
  return sequence.computed;
}

// Full pages can be found from now on: of all tokens, or, where those that were sampled leave other bits
// behind, of the prompt.
void Engine::publish(Sequence& sequence) {
  if (!options_.prefix_cache) return;
  // What is computed ahead may not be known yet.
  const int64_t size = options_.page_tokens,
                end =
                    std::min(sequence.computed, decodes_as_prompts_ ? sequence.length() : sequence.prompt());
  for (; (sequence.published + 1) * size <= end; ++sequence.published)
    sequence.last_serial = pool_.publish(sequence.pages[static_cast<size_t>(sequence.published)],
                                         key_of(sequence, sequence.published));
  if (has_slots_ && sequence.computed > 0 && sequence.computed == last_boundary(sequence))
    keep_slot(sequence);
}

// A copy of the sequence's state at the end of its last page that can be found.
void Engine::keep_slot(const Sequence& sequence) {
  forget_slots();
  const auto same = [&](const auto& kept) { return kept.first == sequence.last_serial; };
  if (std::any_of(kept_slots_.begin(), kept_slots_.end(), same)) return;
  auto slot = static_cast<int32_t>(options_.max_running);
  const auto taken = [&](int32_t each) {
    return std::any_of(kept_slots_.begin(), kept_slots_.end(),
                       [&](const auto& kept) { return kept.second == each; });
  };
  if (std::ssize(kept_slots_) == options_.max_running) {
    slot = kept_slots_.front().second;
    kept_slots_.pop_front();
  }
  while (taken(slot)) ++slot;
  states_.copy_slot(sequence.slot, slot);
  kept_slots_.emplace_back(sequence.last_serial, slot);
}

// States whose pages are gone.
void Engine::forget_slots() {
  kept_slots_.remove_if([&](const auto& kept) { return !pool_.holds(kept.first); });
}

// Of a prompt, at most so many tokens; 0 where a part cannot end so soon.
int64_t Engine::part_of_prompt(const Sequence& sequence, int64_t most) const {
  const int64_t whole = sequence.prompt() - sequence.computed;
  if (!has_slots_) return std::min(most, decodes_as_prompts_ ? sequence.left() : whole);
  int64_t end = sequence.computed + std::min(most, whole);
  const int64_t boundary = options_.prefix_cache ? last_boundary(sequence) : 0;
  if (sequence.computed < boundary) end = std::min(end, boundary);
  if (end < sequence.prompt()) end = end / kPartOfSlots * kPartOfSlots;
  return std::max<int64_t>(0, end - sequence.computed);
}

}  // namespace temper::rollout
