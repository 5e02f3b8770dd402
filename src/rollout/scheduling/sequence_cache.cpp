#include "rollout/scheduling/sequence_cache.h"

namespace temper::rollout {

SequenceCache::SequenceCache(layers::PagedStates states, const PromptParts& parts, int64_t pages,
                             int64_t running)
    : states_(std::move(states)), parts_(parts), pool_(pages), slots_(running) {}

PagePool::Key SequenceCache::key_of(const Sequence& sequence, int64_t page, uint64_t before) const {
  const auto begin = sequence.tokens.begin() + page * parts_.page_tokens;
  return {before, sequence.versions.model, sequence.versions.adapter, {begin, begin + parts_.page_tokens}};
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

int64_t SequenceCache::find_prefix(Sequence& sequence) {
  if (!parts_.prefix_cache || sequence.request().record_experts) return 0;
  const int64_t size = parts_.page_tokens;
  const int64_t most = (sequence.length() - 1) / size;
  std::vector<int32_t> pages;
  std::vector<uint64_t> serials;
  // With slots, a page is of use only where a copy of the state at its end was kept, or at that of a later
  // one.
  size_t with_state = 0;
  int32_t state = PagePool::kNone;
  for (int64_t i = 0; i < most; ++i) {
    const PagePool::Found* const found =
        pool_.find(key_of(sequence, i, serials.empty() ? 0 : serials.back()));
    if (found == nullptr) break;
    pages.push_back(found->page);
    serials.push_back(found->serial);
    if (const std::optional<int32_t> kept = slots_.find(found->serial)) {
      with_state = pages.size();
      state = *kept;
    }
  }
  if (parts_.has_slots) {
    pages.resize(with_state);
    serials.resize(with_state);
  }
  for (const int32_t page : pages) pool_.keep(page);
  sequence.pages = pages;
  sequence.published = std::ssize(pages);
  sequence.last_serial = serials.empty() ? 0 : serials.back();
  sequence.computed = sequence.published * size;
  if (parts_.has_slots && state != PagePool::kNone) states_.copy_slot(state, sequence.slot);
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
    sequence.last_serial = pool_.publish(sequence.pages[static_cast<size_t>(sequence.published)],
                                         key_of(sequence, sequence.published, sequence.last_serial));
  if (parts_.has_slots && sequence.computed > 0 && sequence.computed == parts_.last_boundary(sequence))
    keep_state(sequence);
}

// A copy of the sequence's state at the end of its last page that can be found.
void SequenceCache::keep_state(const Sequence& sequence) {
  slots_.drop_unless([&](uint64_t serial) { return pool_.holds(serial); });
  if (const std::optional<int32_t> slot = slots_.keep(sequence.last_serial))
    states_.copy_slot(sequence.slot, *slot);
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

}  // namespace temper::rollout
