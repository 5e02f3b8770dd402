#pragma once
#include <vector>

#include "tensor/tensor.h"

namespace temper::backends {

// The choices of all tokens (a token's place times top_k, plus which of its choices), put together by expert:
// those of an expert in the order of the tokens, which differ. "Rows" are places in that order.
class ChoicesByExpert {
 public:
  ChoicesByExpert(const Tensor& ids, int64_t experts);  // ids [tokens, top_k] int32 on the CPU

  int64_t count() const { return static_cast<int64_t>(choices_.size()); }
  int64_t first(int64_t expert) const { return starts_[static_cast<size_t>(expert)]; }
  int64_t of(int64_t expert) const { return first(expert + 1) - first(expert); }
  int64_t choice(int64_t row) const { return choices_[static_cast<size_t>(row)]; }
  int64_t token(int64_t row) const { return choice(row) / top_k_; }
  int64_t row(int64_t choice) const { return rows_[static_cast<size_t>(choice)]; }

  // Rows of one expert that are computed at once.
  struct Piece {
    int64_t expert = 0, row = 0, rows = 0;
  };
  std::vector<Piece> pieces(int64_t most) const;

  // The tokens' rows of x [tokens, size] for rows [first, first + count), compact, at `to`.
  void gather(const Tensor& x, int64_t first, int64_t count, void* to) const;
  // y[t] = the sum over t's choices, in their order, of `results` [rows, size]; float32, rounded once.
  void sum(const Tensor& results, const Tensor& y) const;

 private:
  int64_t top_k_;
  std::vector<int32_t> starts_, choices_, rows_;
};

}  // namespace temper::backends
