#pragma once
#include "rollout/scheduling/sequence.h"

namespace temper::rollout {

// The next token of a sequence, as a pass chose it.
struct SampledToken {
  Sequence* sequence;
  ChosenToken token;
};

}  // namespace temper::rollout
