#include "rollout/scheduling/schedule.h"

#include <algorithm>

#include "base/error.h"

namespace temper::rollout {

Schedule::Schedule(SequenceCache& cache, int64_t max_running, int64_t chunk_tokens)
    : cache_(cache), max_running_(max_running), chunk_tokens_(chunk_tokens) {}

void Schedule::add(std::unique_ptr<Sequence> sequence) { waiting_.push_back(std::move(sequence)); }

Schedule::Running::iterator Schedule::place_of(const Sequence& sequence) {
  return std::find_if(running_.begin(), running_.end(),
                      [&](const auto& each) { return each.get() == &sequence; });
}

void Schedule::remove(Sequence& sequence) {
  if (const auto place = place_of(sequence); place != running_.end()) {
    cache_.end(sequence);
    running_.erase(place);
  } else {
    std::erase_if(waiting_, [&](const auto& each) { return each.get() == &sequence; });
  }
}

void Schedule::remove_all() {
  waiting_.clear();
  while (!running_.empty()) remove(*running_.front());
}

Sequence* Schedule::find(int64_t id) const {
  for (const auto& each : running_)
    if (each->result().id == id) return each.get();
  for (const auto& each : waiting_)
    if (each->result().id == id) return each.get();
  return nullptr;
}

// To the front of those that wait; its tokens are computed again.
void Schedule::set_back(Sequence& sequence) {
  cache_.end(sequence);
  const auto at = place_of(sequence);
  waiting_.push_front(std::move(*at));
  running_.erase(at);
}

void Schedule::follow_weights(uint64_t model_version) {
  std::vector<Sequence*> stale;
  for (const auto& sequence : running_)
    if (sequence->versions != WeightVersions::of(model_version, sequence->request().adapter))
      stale.push_back(sequence.get());
  for (auto each = stale.rbegin(); each != stale.rend(); ++each) {
    ++(*each)->result().recomputations;
    ++counts_.recomputations;
    set_back(**each);
  }
}

// Whether a running prompt is about to compute pages that this one could take over.
bool Schedule::shares_unfinished(const Sequence& sequence, const WeightVersions& versions) const {
  const PromptParts& parts = cache_.parts();
  if (!parts.prefix_cache || sequence.request().record_experts) return false;
  const int64_t size = parts.page_tokens, most = (sequence.length() - 1) / size * size;
  return std::any_of(running_.begin(), running_.end(), [&](const auto& other) {
    if (other->computed >= other->prompt() || other->versions != versions) return false;
    const int64_t shared = std::mismatch(sequence.tokens.begin(), sequence.tokens.begin() + most,
                                         other->tokens.begin(), other->tokens.begin() + other->prompt())
                               .first -
                           sequence.tokens.begin();
    const int64_t whole = parts.has_slots ? parts.last_boundary(*other) : shared / size * size;
    return whole <= shared && other->computed < whole;
  });
}

void Schedule::start_waiting(uint64_t model_version) {
  for (auto next = waiting_.begin(); next != waiting_.end() && running() < max_running_;) {
    const WeightVersions versions = WeightVersions::of(model_version, (*next)->request().adapter);
    if (shares_unfinished(**next, versions)) {
      ++next;
      continue;
    }
    if (!start(**next, versions)) return;
    running_.push_back(std::move(*next));
    next = waiting_.erase(next);
  }
}

// False where too few pages are left.
bool Schedule::start(Sequence& sequence, const WeightVersions& versions) {
  const std::optional<int64_t> found = cache_.begin(sequence, versions);
  if (!found) return false;
  counts_.found += *found;
  if (sequence.result().preemptions + sequence.result().recomputations == 0)
    sequence.result().cached_tokens = *found;
  return true;
}

bool Schedule::make_room(Sequence& sequence, int64_t tokens) {
  const int64_t needed = cache_.pages_for(sequence.computed + tokens);
  while (std::ssize(sequence.pages) < needed) {
    if (cache_.add_page(sequence)) continue;
    Sequence& last = *running_.back();
    ++last.result().preemptions;
    ++counts_.preemptions;
    set_back(last);
    if (&last == &sequence) return false;
  }
  return true;
}

std::vector<ScheduledPart> Schedule::next(uint64_t model_version) {
  follow_weights(model_version);
  start_waiting(model_version);
  std::vector<ScheduledPart> decoding, prompts;
  int64_t budget = chunk_tokens_;
  for (auto next = running_.begin(); next != running_.end();) {
    Sequence& sequence = **next;
    const bool decodes = cache_.parts().decodes(sequence);
    const int64_t tokens = decodes ? 1 : cache_.parts().next_part(sequence, budget);
    const bool last = std::next(next) == running_.end();
    if (tokens > 0) {
      if (!make_room(sequence, tokens)) break;  // it was the last
      (decodes ? decoding : prompts).push_back({&sequence, tokens, decodes});
      if (!decodes) budget -= tokens;
    }
    if (last) break;
    ++next;
  }
  std::sort(decoding.begin(), decoding.end(), [](const ScheduledPart& a, const ScheduledPart& b) {
    return a.sequence->slot < b.sequence->slot;
  });
  decoding.insert(decoding.end(), prompts.begin(), prompts.end());
  invariant(!decoding.empty() || (waiting_.empty() && running_.empty()),
            "there are requests and nothing to compute");
  return decoding;
}

}  // namespace temper::rollout
