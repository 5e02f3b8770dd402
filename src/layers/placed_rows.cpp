#include "layers/placed_rows.h"

#include <algorithm>

#include "base/error.h"

namespace temper::layers {

int64_t PlacedRows::count() const {
  int64_t all = 0;
  for (const TokenRange& range : tokens) all += range.count;
  return all;
}

void check_placed_rows(const PlacedRows& placed, int64_t tokens, int64_t hidden, DType dtype) {
  int64_t end = 0;
  for (const TokenRange& range : placed.tokens) {
    if (range.count < 1 || range.first < end || range.first + range.count > tokens)
      fail("rows for tokens {} to {}, needs ranges that rise, from {} on, within the {} tokens of the pass",
           range.first, range.first + range.count, end, tokens);
    end = range.first + range.count;
  }
  const Shape shape{placed.count(), hidden};
  const auto check = [&](const Var& rows, const std::string& name) {
    if (!rows.value.defined() || rows.shape() != shape || rows.dtype() != dtype)
      fail("{} are {}, needs {} {} for the tokens that they are given for", name,
           rows.value.defined() ? fmt::format("{} {}", to_string(rows.dtype()), to_string(rows.shape()))
                                : std::string("missing"),
           to_string(dtype), to_string(shape));
  };
  check(placed.rows, "rows in place of embeddings");
  for (size_t i = 0; i < placed.after_layers.size(); ++i)
    check(placed.after_layers[i], fmt::format("rows to add behind layer {}", i));
}

RowPlaces::RowPlaces(const std::vector<TokenRange>& tokens, const TokenCut& cut, int64_t first,
                     int64_t count) {
  int64_t row = 0;
  for (const TokenRange& range : tokens) {
    if (cut.is_whole()) {
      place({row, range.count}, range.first, first, count);
    } else {
      int64_t before = 0;  // of this rank's tokens
      for (const TokenRange& own : cut.own()) {
        const int64_t begin = std::max(range.first, own.first),
                      end = std::min(range.first + range.count, own.first + own.count);
        if (begin < end)
          place({row + begin - range.first, end - begin}, before + begin - own.first, first, count);
        before += own.count;
      }
    }
    row += range.count;
  }
}

// Of rows whose tokens begin at the rank's token `at`, those that this part of the stream has.
void RowPlaces::place(const TokenRange& rows, int64_t at, int64_t first, int64_t count) {
  const int64_t begin = std::max(at, first), end = std::min(at + rows.count, first + count);
  if (begin < end) pieces_.push_back({{rows.first + begin - at, end - begin}, begin - first});
}

// Where rows have a gradient, they have one on all ranks, of zeros where their tokens are elsewhere, and so
// has x, whatever is replaced: what other models and ranks do behind them depends on no data.
Var RowPlaces::record(Tape& tape, const Tensor& result, const Var& x, const Var& rows, bool replaces) const {
  return tape.record(
      result, {&x, &rows},
      [pieces = pieces_, replaces, x = x.slot, rows = rows.slot, shape = rows.shape()](const Tensor& grad) {
        if (rows) {
          const Tensor own = Tensor::zeros(shape, grad.dtype(), MemoryTag::kActivations, grad.device());
          for (const Piece& piece : pieces)
            own.narrow(0, piece.rows.first, piece.rows.count)
                .copy_from(grad.narrow(0, piece.at, piece.rows.count));
          rows->add(own);
        }
        if (!x) return;
        const Tensor rest = replaces ? grad.clone() : grad;
        if (replaces)
          for (const Piece& piece : pieces) rest.narrow(0, piece.at, piece.rows.count).fill_zero();
        x->add(rest);
      });
}

Var RowPlaces::replace(Tape& tape, const Var& x, const Var& rows) const {
  const Tensor all = x.value.clone();
  for (const Piece& piece : pieces_)
    all.narrow(0, piece.at, piece.rows.count)
        .copy_from(rows.value.narrow(0, piece.rows.first, piece.rows.count));
  return record(tape, all, x, rows, true);
}

Var RowPlaces::add(Tape& tape, const Var& x, const Var& rows) const {
  const Tensor all = x.value.clone();
  for (const Piece& piece : pieces_)
    add_in_place(all.narrow(0, piece.at, piece.rows.count),
                 rows.value.narrow(0, piece.rows.first, piece.rows.count));
  return record(tape, all, x, rows, false);
}

}  // namespace temper::layers
