#pragma once
#include "collectives/group.h"

namespace temper::parallel {

// The ranks that compute an update together, as seen from one of them. Where context ranks have other tokens
// of the same rows, a count of rows is one over `rows`; what each rank knows of its own tokens, a part of the
// loss or a gradient, is a sum over `tokens`, to which of what they know alike (`counts`) one of them adds.
// Where stages of a pipeline have parts of the model, gradients are still sums over `tokens`, which are of
// one stage, and what is reported, of which each stage knows some, is one over `results`: what all know of
// the rows is added by one of the first stage (`counts`), what only the last one knows of them by one of
// that (`judges`).
struct UpdateRanks {
  UpdateRanks(collectives::Group& all)  // NOLINT: each rank has rows of its own
      : rows(all), tokens(all), results(all) {}
  UpdateRanks(collectives::Group& with_rows, collectives::Group& with_tokens, bool counts_here)
      : UpdateRanks(with_rows, with_tokens, with_tokens, counts_here, counts_here) {}
  UpdateRanks(collectives::Group& with_rows, collectives::Group& with_tokens,
              collectives::Group& with_results, bool counts_here, bool judges_here)
      : rows(with_rows),
        tokens(with_tokens),
        results(with_results),
        counts(counts_here),
        judges(judges_here) {}

  collectives::Group& rows;     // that have other rows
  collectives::Group& tokens;   // that have other rows or other tokens: of all, gradients are summed
  collectives::Group& results;  // the same of all stages
  bool counts = true;           // of those that have the same rows one does
  bool judges = true;           // of those of them that end in the loss one does
};

}  // namespace temper::parallel
