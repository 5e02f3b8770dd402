#pragma once
#include <vector>

#include "data/batches.h"
#include "recipes/grpo/answers/sampled_answer.h"

namespace temper::recipes {

struct SampleRows {
  std::vector<data::PackedRow> rows;  // without PackedRow::sampled
  // Of each target of the rows, in their order: where it stands.
  struct Place {
    SampledAnswer* sample;
    size_t passage, token;  // the token: of Passage::ids
  };
  std::vector<Place> targets;

  // A value of each target, in their order, comes to its token: an entry of that column of its passage, in
  // which all other tokens have 0 unless they have a value already.
  void take(const std::vector<float>& values, data::TokenColumns::Column data::TokenColumns::*column) const;
  // What is known of each target, from what the samples hold now.
  void fill();
};

// Samples as rows of at most `max_tokens` tokens whose targets are what was sampled. Samples of one group
// follow one another; with `share_prompts` their prompt is there once, where they have one passage each.
SampleRows rows_of(const std::vector<SampledAnswer*>& samples, int64_t max_tokens, data::Packing packing,
                   bool share_prompts);

// Rows as a batch, whose tokens are counted.
data::Batch batch_of(std::vector<data::PackedRow> rows);

}  // namespace temper::recipes
