#pragma once
#include <utility>
#include <vector>

#include "data/pack.h"
#include "layers/decoder.h"

namespace temper::training {

// A document of a micro-batch, in which documents follow one another.
struct DocumentSpan {
  int64_t length = 0, target_tokens = 0;
  int32_t source = 0;
};

// Rows that are computed at once; tensors on the CPU.
struct MicroBatch {
  layers::DecoderInput input;
  Tensor targets;  // [tokens] int32
  std::vector<int32_t> lengths;
  std::vector<DocumentSpan> documents;
  int64_t tokens = 0;
};

// Rows [begin, end).
MicroBatch gather(const std::vector<data::PackedRow>& rows, size_t begin, size_t end);

// Consecutive rows whose tokens fit the budget (0: no limit); every group has at least one row.
std::vector<std::pair<size_t, size_t>> cut_micro_batches(const std::vector<data::PackedRow>& rows,
                                                         int64_t max_tokens);

}  // namespace temper::training
