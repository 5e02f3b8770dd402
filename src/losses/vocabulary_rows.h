#pragma once
#include "ops/cross_entropy/cross_entropy.h"

namespace temper::losses {

// Functions of rows of which each rank has some columns; alone, a rank has them all. Ids are columns of the
// whole row.
class VocabularyRows {
 public:
  explicit VocabularyRows(const ops::VocabularyRanks& ranks) : ranks_(ranks) {}

  Var sum(Tape& tape, const Var& x) const;      // [rows, 1]
  Var largest(Tape& tape, const Var& x) const;  // [rows, 1], a constant
  // logits / temperature in float32, less the largest of the row.
  Var shifted(Tape& tape, const Var& logits, double temperature) const;
  // A number of each whole row, which every rank reads for its own columns.
  Var read(Tape& tape, const Var& x) const;
  // x at ids [rows] or [rows, k] int32 on the CPU, [rows, k].
  Var at(Tape& tape, const Var& x, const Tensor& ids) const;
  // log Σ exp(x) over the columns that ids [rows, k] do not name, [rows, 1]; below -1e29 where they name all.
  Var log_sum_of_others(Tape& tape, const Var& x, const Tensor& ids) const;

 private:
  // Of ids those that are this rank's columns, and 1 for each of them; 0 and 0 for the others.
  struct Own {
    Tensor columns, here;
  };
  Own own(const Tensor& ids, int64_t width) const;

  const ops::VocabularyRanks ranks_;
};

}  // namespace temper::losses
