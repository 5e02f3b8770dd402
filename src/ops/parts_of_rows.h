#pragma once
#include "primitives/primitives.h"

namespace temper::ops {

// Columns of rows next to each other, zero between them.
class PartsOfRows {
 public:
  // As many rows as `like` has, on its device in its dtype.
  PartsOfRows(Tape& tape, const Var& like) : tape_(tape), like_(like) {}

  // Parts by ascending columns.
  void put(int64_t column, const Var& part) {
    fill(column);
    append(part);
  }
  // The rows, of `columns` columns.
  Var finish(int64_t columns) {
    fill(columns);
    return rows_;
  }

 private:
  void fill(int64_t column) {
    if (column == end_) return;
    append(tape_.constant(Tensor::zeros({like_.shape()[0], column - end_}, like_.dtype(),
                                        MemoryTag::kActivations, like_.value.device())));
  }
  void append(const Var& part) {
    rows_ = end_ > 0 ? primitives::concat_last(tape_, rows_, part) : part;
    end_ += part.shape()[1];
  }

  Tape& tape_;
  const Var& like_;
  Var rows_;
  int64_t end_ = 0;
};

}  // namespace temper::ops
