#pragma once
#include <functional>
#include <span>
#include <vector>

#include "layers/adapter.h"

namespace temper::layers {

// Whose the rows (tokens) of one pass are: all of them in their order; none: the model's alone.
class AdaptedRows {
 public:
  AdaptedRows() = default;
  AdaptedRows(std::vector<AdapterRows> rows, int64_t tokens);

  std::span<const AdapterRows> all() const { return rows_; }
  // Of consecutive tokens; those behind the last are like it.
  AdaptedRows part(int64_t first, int64_t tokens) const;
  // Whether an adapter trains a copy of one of the weights.
  bool any_replaces(std::span<const BoundWeight* const> weights) const;

  // Calls f for all rows at once, or, where an adapter trains copies of the weights, for each adapter's rows,
  // and puts the results together. Inputs may be Var{}, except the first. Modules call their op directly
  // where all() is empty: this function would take a twelfth of the host's time of a step.
  struct Piece {
    std::span<const AdapterRows> rows;        // whose they are
    int64_t first = 0;                        // where they begin
    bool all = true;                          // they are all rows of the pass
    std::vector<Var> inputs;                  // [rows of the piece, width] each
    std::vector<primitives::Matrix> weights;  // of any shape, as many as were asked for
  };
  using PerPiece = std::function<std::vector<Var>(const Piece& piece)>;
  using Weights = std::span<const BoundWeight* const>;
  std::vector<Var> by_pieces(Tape& tape, std::vector<Var> inputs, Weights weights, const PerPiece& f) const;

 private:
  std::vector<Piece> cut(Tape& tape, std::vector<Var> inputs, Weights weights) const;

  std::vector<AdapterRows> rows_;
};

// x cut where the rows of another adapter begin, as views.
std::vector<Var> parts_of(Tape& tape, const Var& x, std::span<const AdapterRows> rows);

// What the rows read of a weight, and the update that they add to it, or null.
primitives::Matrix weight_of(Tape& tape, const AdapterRows& rows, const BoundWeight& weight);
const Adapter::Update* update_of(const AdapterRows& rows, const BoundWeight& weight);

}  // namespace temper::layers
