#pragma once
#include <vector>

#include "autograd/tape.h"
#include "layers/token_cut.h"

namespace temper::layers {

// Rows of the residual stream that another model made, as a tower does of pictures: they stand in place of
// the embeddings of their tokens. Where context ranks compute the tokens together, all of them give all rows.
//
// Gradients reach the rows, and zeros the embeddings that they replace. A rank's is that of the tokens that
// it has (TokenCut, and its part of the stream where tensor ranks divide that), zeros for others: the whole
// is the sum over these ranks.
struct PlacedRows {
  std::vector<TokenRange> tokens;  // of the pass: rising, and none twice
  Var rows;                        // [tokens in all ranges, hidden], in the model's dtype
  // [tokens in all ranges, hidden] each: added to the stream behind layers 0, 1, …, at these tokens
  // (deepstack, Qwen3-VL).
  std::vector<Var> after_layers = {};

  bool exist() const { return !tokens.empty(); }
  int64_t count() const;
};

// An Error where the ranges are no places of a pass over `tokens` tokens, or rows are not [count(), hidden]
// of the dtype.
void check_placed_rows(const PlacedRows& placed, int64_t tokens, int64_t hidden, DType dtype);

// Where rows are in a part of the stream: tokens `first` to `first` + `count` of those that `cut` gives this
// rank.
class RowPlaces {
 public:
  RowPlaces(const std::vector<TokenRange>& tokens, const TokenCut& cut, int64_t first, int64_t count);

  // x [count, hidden] with rows [rows, hidden] in place of its own.
  Var replace(Tape& tape, const Var& x, const Var& rows) const;
  // x + rows at their places.
  Var add(Tape& tape, const Var& x, const Var& rows) const;

 private:
  // Consecutive rows, and where the first of them is among the stream's tokens here.
  struct Piece {
    TokenRange rows;
    int64_t at = 0;
  };
  Var record(Tape& tape, const Tensor& result, const Var& x, const Var& rows, bool replaces) const;
  void place(const TokenRange& rows, int64_t at, int64_t first, int64_t count);

  std::vector<Piece> pieces_;
};

}  // namespace temper::layers
