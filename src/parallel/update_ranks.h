#pragma once
#include "collectives/group.h"

namespace temper::parallel {

// The ranks that compute an update together, as seen from one of them. Where context ranks have other tokens
// of the same rows, a count of rows is one over `rows`; what each rank knows of its own tokens, a part of the
// loss or a gradient, is a sum over `tokens`, to which of what they know alike (`counts`) one of them adds.
struct UpdateRanks {
  UpdateRanks(collectives::Group& all) : rows(all), tokens(all) {}  // NOLINT: each rank has rows of its own
  UpdateRanks(collectives::Group& with_rows, collectives::Group& with_tokens, bool counts_here)
      : rows(with_rows), tokens(with_tokens), counts(counts_here) {}

  collectives::Group& rows;    // that have other rows
  collectives::Group& tokens;  // that have other rows or other tokens: of all, gradients are summed
  bool counts = true;          // of those that have the same rows one does
};

}  // namespace temper::parallel
