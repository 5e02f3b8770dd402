#include "rollout/scheduling/sequence_cache.h"

#include <algorithm>

namespace temper::rollout {

SequenceCache::SequenceCache(layers::PagedStates states, const PromptParts& parts, int64_t pages,
                             int64_t running)
    : states_(std::move(states)), parts_(parts), pool_(pages), slots_(running) {}

PagePool::Key SequenceCache::key_of(const Sequence& sequence, int64_t page, uint64_t before,
                                    int64_t tokens) const {
  const auto begin = sequence.tokens.begin() + page * parts_.page_tokens;
  return {before, sequence.versions.model, sequence.versions.adapter, {begin, begin + tokens}};
}

std::optional<int64_t> SequenceCache::begin(Sequence& sequence, const WeightVersions& versions) {
  sequence.slot = slots_.take();
  sequence.versions = versions;
  if (parts_.has_slots) states_.clear_slot(sequence.slot);
  const int64_t found = find_prefix(sequence);
  if (pages_for(sequence.length() + 1) - std::ssize(sequence.pages) <= pool_.available()) return found;
  end(sequence);
  return {};
}

SequenceCache::Prefix SequenceCache::prefix_of(const Sequence& sequence) const {
  const int64_t size = parts_.page_tokens;
  const int64_t most = (sequence.length() - 1) / size;
  Prefix prefix;
  // With slots, a page is of use only where a copy of the state at its end was kept, or at that of a later
  // one.
  size_t with_state = 0;
  for (int64_t i = 0; i < most; ++i) {
    const PagePool::Found* const found = pool_.find(key_of(sequence, i, prefix.serial(), size));
    if (found == nullptr) break;
    prefix.pages.push_back(*found);
    if (const std::optional<int32_t> kept = slots_.find(found->serial)) {
      with_state = prefix.pages.size();
      prefix.state = *kept;
    }
  }
  if (parts_.continues_answers) find_end(sequence, prefix);
  if (parts_.has_slots && !prefix.end) prefix.pages.resize(with_state);
  return prefix;
}

// The longest end of an earlier text behind the full pages that this text continues.
void SequenceCache::find_end(const Sequence& sequence, Prefix& prefix) const {
  const int64_t size = parts_.page_tokens, full = std::ssize(prefix.pages);
  for (int64_t tokens = std::min(size, sequence.length() - full * size) - 1; tokens > 0; --tokens) {
    const PagePool::Found* const found = pool_.find(key_of(sequence, full, prefix.serial(), tokens));
    if (found == nullptr) continue;
    const std::optional<int32_t> kept = slots_.find(found->serial);
    if (parts_.has_slots && !kept) continue;
    prefix.end = *found;
    prefix.end_tokens = tokens;
    prefix.state = kept.value_or(PagePool::kNone);
    return;
  }
}

int64_t SequenceCache::find_prefix(Sequence& sequence) {
  if (!parts_.prefix_cache || sequence.request().record_experts) return 0;
  const Prefix prefix = prefix_of(sequence);
  for (const PagePool::Found& found : prefix.pages) {
    pool_.keep(found.page);
    sequence.pages.push_back(found.page);
  }
  sequence.published = std::ssize(prefix.pages);
  sequence.last_serial = prefix.serial();
  sequence.computed = sequence.published * parts_.page_tokens + prefix.end_tokens;
  if (prefix.end) {
    pool_.take_over(prefix.end->page);
    sequence.pages.push_back(prefix.end->page);
  }
  if (parts_.has_slots && prefix.state != PagePool::kNone) states_.copy_slot(prefix.state, sequence.slot);
  return sequence.computed;
}

bool SequenceCache::add_page(Sequence& sequence) {
  const int32_t page = pool_.take();
  if (page == PagePool::kNone) return false;
  sequence.pages.push_back(page);
  return true;
}

void SequenceCache::publish(Sequence& sequence) {
  if (!parts_.prefix_cache) return;
  const int64_t end = parts_.shareable(sequence);
  for (; (sequence.published + 1) * parts_.page_tokens <= end; ++sequence.published)
    sequence.last_serial =
        pool_.publish(sequence.pages[static_cast<size_t>(sequence.published)],
                      key_of(sequence, sequence.published, sequence.last_serial, parts_.page_tokens));
  if (parts_.has_slots && sequence.computed > 0 && sequence.computed == parts_.last_boundary(sequence))
    keep_state(sequence, sequence.last_serial);
}

void SequenceCache::keep_end(Sequence& sequence) {
  // A pass may be under way that computes what is no token.
  const bool known = sequence.computed > 0 && sequence.computed <= sequence.length();
  if (!parts_.prefix_cache || !parts_.continues_answers || !known) return;
  publish(sequence);
  uint64_t serial = sequence.last_serial;
  const int64_t rest = sequence.computed - sequence.published * parts_.page_tokens;
  if (rest > 0)
    serial = pool_.publish(sequence.pages[static_cast<size_t>(sequence.published)],
                           key_of(sequence, sequence.published, serial, rest));
  if (parts_.has_slots) keep_state(sequence, serial);
}

// A copy of the sequence's state, at the end of the page with this serial.
void SequenceCache::keep_state(const Sequence& sequence, uint64_t serial) {
  slots_.drop_unless([&](uint64_t each) { return pool_.holds(each); });
  if (const std::optional<int32_t> slot = slots_.keep(serial)) states_.copy_slot(sequence.slot, *slot);
}

void SequenceCache::end(Sequence& sequence) {
  slots_.give_back(sequence.slot);
  for (auto page = sequence.pages.rbegin(); page != sequence.pages.rend(); ++page) pool_.give_back(*page);
  sequence.pages.clear();
  sequence.published = 0;
  sequence.last_serial = 0;
  sequence.computed = 0;
  sequence.slot = PagePool::kNone;
}

void SequenceCache::forget() {
  pool_.forget();
  slots_.forget();
}

void SequenceCache::grow(int64_t tokens) {
  const int64_t spare = states_.sizes().pages - pool_.size();
  states_.grow(pages_for(tokens) + spare);
  pool_.grow(pages_for(tokens));
}

}  // namespace temper::rollout
