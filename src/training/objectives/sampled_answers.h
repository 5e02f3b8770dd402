#pragma once
#include <vector>

#include "training/passes/micro_batch.h"

namespace temper::training {

// Where the sampled tokens of a pass are.
struct SampledAnswers {
  std::vector<int32_t> positions, ids;  // of each target in the pass, and which token it is
  std::vector<int64_t> lengths;         // targets of each answer; answers without one are left out

  // Neighbouring answers with at most `most_targets` targets, or one answer.
  struct Part {
    std::span<const int64_t> lengths;
    int64_t first = 0, targets = 0;
  };
  std::vector<Part> parts(int64_t most_targets) const;
};

// Of documents that follow one another from token 0; targets [tokens] int32 on the CPU.
SampledAnswers find_sampled(const Tensor& targets, std::span<const DocumentSpan> documents);

// What is known of the rows' targets, in their order, in columns that all have an entry for each.
data::TokenColumns sampled_tokens(const std::vector<data::PackedRow>& rows);

// Answers that have a target.
int64_t count_sampled(const std::vector<data::PackedRow>& rows);

}  // namespace temper::training
