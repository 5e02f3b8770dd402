#pragma once
#include "rollout/scheduling/sequence.h"

namespace temper::rollout {

// Where a pass may end the part of a text that it computes, so that its results have the bits of a pass over
// the whole text, and which tokens other requests may take over. It follows from what the mixers of the
// model keep.
struct PromptParts {
  int64_t page_tokens = 16;
  bool prefix_cache = true;
  bool has_slots = false;  // mixers keep a state of fixed size per sequence, in a slot
  // Whether sampled tokens may be computed again in parts, as prompts are. Never with slots: their states are
  // kept at few places of a text, and are continued one token after the other.
  bool decodes_as_prompts = true;
  // Whether texts may continue at the last token of an earlier text, whichever form computed that.
  bool continues_answers = false;

  // Whether the next pass gives this sequence one token, the one that was sampled last or, where sampled
  // tokens are computed again, the next of them.
  bool decodes(const Sequence& sequence) const;
  // Tokens of the next part of its text, at most `most`; 0 where no part that short may end there.
  int64_t next_part(const Sequence& sequence, int64_t most) const;
  // The last end of a page of its prompt at which a state may be kept for other requests to continue, in
  // tokens; 0: there is none.
  int64_t last_boundary(const Sequence& sequence) const;
  // Tokens of its text whose pages other requests may take over.
  int64_t shareable(const Sequence& sequence) const;
};

}  // namespace temper::rollout
