// The part of the engine that says which requests run, and what each gets in a pass.
#include <algorithm>

#include "rollout/sequence.h"

namespace temper::rollout {
namespace {

int64_t pages_for(int64_t tokens, int64_t page_tokens) { return (tokens + page_tokens - 1) / page_tokens; }

}  // namespace

// States of other weights are of no use: what is running is computed again.
void Engine::follow_weights() {
  const uint64_t version = model_.parameters().version();
  std::vector<Sequence*> stale;
  for (const auto& sequence : running_)
    if (version != model_version_ ||
        sequence->adapter_version != Sequence::version_of(sequence->request.adapter))
      stale.push_back(sequence.get());
  model_version_ = version;
  for (auto each = stale.rbegin(); each != stale.rend(); ++each) {
    ++(*each)->result.recomputations;
    ++counts_.recomputations;
    set_back(**each);
  }
}

// Whether a running prompt is about to compute pages that this one could take over.
bool Engine::shares_unfinished(const Sequence& sequence) const {
  if (!options_.prefix_cache || sequence.request.record_experts) return false;
  const uint64_t version = Sequence::version_of(sequence.request.adapter);
  const int64_t size = options_.page_tokens, most = (sequence.length() - 1) / size * size;
  return std::any_of(running_.begin(), running_.end(), [&](const auto& other) {
    if (other->computed >= other->prompt() || other->adapter_version != version) return false;
    const int64_t shared = std::mismatch(sequence.tokens.begin(), sequence.tokens.begin() + most,
                                         other->tokens.begin(), other->tokens.begin() + other->prompt())
                               .first -
                           sequence.tokens.begin();
    const int64_t whole = has_slots_ ? last_boundary(*other) : shared / size * size;
    return whole <= shared && other->computed < whole;
  });
}

// In the order of their coming, but for those that wait for what another computes.
void Engine::admit() {
  for (auto next = waiting_.begin(); next != waiting_.end() && running() < options_.max_running;) {
    if (shares_unfinished(**next)) {
      ++next;
      continue;
    }
    if (!begin(**next)) return;
    running_.push_back(std::move(*next));
    next = waiting_.erase(next);
  }
}

// False where there are too few pages for all of its tokens and one more.
bool Engine::begin(Sequence& sequence) {
  sequence.slot = free_slots_.back();
  sequence.adapter_version = Sequence::version_of(sequence.request.adapter);
  if (has_slots_) states_.clear_slot(sequence.slot);
  const int64_t found = find_prefix(sequence);
  const int64_t wanted = pages_for(sequence.length() + 1, options_.page_tokens) - std::ssize(sequence.pages);
  if (wanted > pool_.available()) {
    release(sequence);
    return false;
  }
  free_slots_.pop_back();
  counts_.found += found;
  if (sequence.result.preemptions + sequence.result.recomputations == 0)
    sequence.result.cached_tokens = found;
  return true;
}

void Engine::release(Sequence& sequence) {
  for (auto page = sequence.pages.rbegin(); page != sequence.pages.rend(); ++page) pool_.give_back(*page);
  sequence.pages.clear();
  sequence.published = 0;
  sequence.last_serial = 0;
  sequence.computed = 0;
  sequence.slot = PagePool::kNone;
}

void Engine::preempt(Sequence& sequence) {
  ++sequence.result.preemptions;
  ++counts_.preemptions;
  set_back(sequence);
}

// To the front of those that wait; its tokens are computed again.
void Engine::set_back(Sequence& sequence) {
  free_slots_.push_back(sequence.slot);
  release(sequence);
  const auto at = std::find_if(running_.begin(), running_.end(),
                               [&](const auto& each) { return each.get() == &sequence; });
  waiting_.push_front(std::move(*at));
  running_.erase(at);
}

// Pages for so many tokens more, which later requests give up where none is left; false where the sequence
// itself was the last.
bool Engine::make_room(Sequence& sequence, int64_t tokens) {
  const int64_t wanted = pages_for(sequence.computed + tokens, options_.page_tokens);
  while (std::ssize(sequence.pages) < wanted) {
    if (const int32_t page = pool_.take(); page != PagePool::kNone) {
      sequence.pages.push_back(page);
      continue;
    }
    Sequence& last = *running_.back();
    preempt(last);
    if (&last == &sequence) return false;
  }
  return true;
}

// Those that decode, by slot; then parts of prompts. Where sampled tokens are computed again, they go one by
// one.
std::vector<Engine::Part> Engine::plan() {
  std::vector<Part> decoding, prompts;
  int64_t budget = options_.chunk_tokens;
  for (auto next = running_.begin(); next != running_.end();) {
    Sequence& sequence = **next;
    const bool decodes =
        sequence.computed >= sequence.prompt() && (!decodes_as_prompts_ || sequence.left() == 1);
    const int64_t tokens = decodes ? 1 : part_of_prompt(sequence, budget);
    const bool last = std::next(next) == running_.end();
    if (tokens > 0) {
      if (!make_room(sequence, tokens)) break;  // it was the last
      (decodes ? decoding : prompts).push_back({&sequence, tokens, decodes});
      if (!decodes) budget -= tokens;
    }
    if (last) break;
    ++next;
  }
  std::sort(decoding.begin(), decoding.end(),
            [](const Part& a, const Part& b) { return a.sequence->slot < b.sequence->slot; });
  decoding.insert(decoding.end(), prompts.begin(), prompts.end());
  return decoding;
}

}  // namespace temper::rollout
