#pragma once
#include "layers/paged_states.h"
#include "rollout/scheduling/prompt_parts.h"
#include "rollout/scheduling/state_slots.h"

namespace temper::rollout {

// The cache of running sequences: it gives each its pages and its slot, and finds beginnings of texts that
// were computed before by the same weights (prefix cache).
class SequenceCache {
 public:
  // Of `states` this has `pages`, and slots for `running` sequences and for copies (StateSlots).
  SequenceCache(layers::PagedStates states, const PromptParts& parts, int64_t pages, int64_t running);

  const layers::PagedStates& states() const { return states_; }
  const PromptParts& parts() const { return parts_; }
  int64_t tokens() const { return pool_.size() * parts_.page_tokens; }  // that there is room for
  int64_t available_pages() const { return pool_.available(); }
  int64_t pages_for(int64_t tokens) const { return (tokens + parts_.page_tokens - 1) / parts_.page_tokens; }
  // Behind those of sequences and copies: for rows of captured passes without a sequence.
  int32_t spare_page() const { return static_cast<int32_t>(pool_.size()); }
  int32_t spare_slot() const { return static_cast<int32_t>(slots_.size()); }

  // Gives a sequence a slot, and the pages that hold the beginning of its text, all but its last token, whose
  // logits are needed. Returns how many tokens it found; nothing, and the sequence has nothing, where too few
  // pages are left for all of its tokens and one more. `versions`: of the weights from now on.
  std::optional<int64_t> begin(Sequence& sequence, const WeightVersions& versions);
  bool add_page(Sequence& sequence);  // false where none is left
  // Full pages can be found from now on.
  void publish(Sequence& sequence);
  // The end of a sequence that has ended can be found, too, where texts continue answers.
  void keep_end(Sequence& sequence);
  // Takes back its pages and its slot; its tokens are to be computed again.
  void end(Sequence& sequence);
  // While no sequence has pages: nothing is found any more.
  void forget();
  // Room for this many tokens; what is there is kept, at other addresses.
  void grow(int64_t tokens);

 private:
  // What is there of a text: full pages, then one that an earlier text ended in.
  struct Prefix {
    std::vector<PagePool::Found> pages = {};
    std::optional<PagePool::Found> end = {};
    int64_t end_tokens = 0;
    int32_t state = PagePool::kNone;  // the slot of the copy, of the state at its end

    uint64_t serial() const { return pages.empty() ? 0 : pages.back().serial; }
  };
  PagePool::Key key_of(const Sequence& sequence, int64_t page, uint64_t before, int64_t tokens) const;
  Prefix prefix_of(const Sequence& sequence) const;
  void find_end(const Sequence& sequence, Prefix& prefix) const;
  int64_t find_prefix(Sequence& sequence);
  void keep_state(const Sequence& sequence, uint64_t serial);

  layers::PagedStates states_;
  const PromptParts parts_;
  PagePool pool_;
  StateSlots slots_;
};

}  // namespace temper::rollout
