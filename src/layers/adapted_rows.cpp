#include "layers/adapted_rows.h"

#include <algorithm>

#include "base/error.h"
#include "layers/glue.h"
#include "primitives/primitives.h"

namespace temper::layers {

AdapterRows AdapterRows::part(int64_t first, int64_t count) const {
  AdapterRows part = *this;
  part.rows = count;
  part.pieces.clear();
  int64_t before = 0;
  for (const TokenRange& piece : pieces) {
    const int64_t from = std::max(before, first), until = std::min(before + piece.count, first + count);
    if (from < until) part.pieces.push_back({piece.first + from - before, until - from});
    before += piece.count;
  }
  if (pieces.empty()) part.first_row += first;
  return part;
}

AdapterRows AdapterRows::own(const TokenCut& cut) const {
  if (cut.is_whole()) return *this;
  const auto ranges = cut.own();
  AdapterRows own = *this;
  own.rows = cut.tokens_of(cut.place());
  if (ranges.size() == 1)
    own.first_row += ranges.front().first;
  else
    own.pieces.assign(ranges.begin(), ranges.end());
  return own;
}

AdaptedRows::AdaptedRows(std::vector<AdapterRows> rows, int64_t tokens) : rows_(std::move(rows)) {
  int64_t count = 0;
  for (const AdapterRows& each : rows_) count += each.rows;
  invariant(rows_.empty() || count == tokens, "every token of a pass is an adapter's or the model's");
}

AdaptedRows AdaptedRows::part(int64_t first, int64_t tokens) const {
  if (rows_.empty()) return {};
  std::vector<AdapterRows> part;
  int64_t begin = 0;
  for (const AdapterRows& each : rows_) {
    const int64_t end =
        &each == &rows_.back() ? std::max(begin + each.rows, first + tokens) : begin + each.rows;
    const int64_t from = std::max(begin, first), until = std::min(end, first + tokens);
    if (from < until) {
      part.push_back(each.part(from - begin, until - from));
    }
    begin += each.rows;
  }
  return {std::move(part), tokens};
}

std::vector<Var> parts_of(Tape& tape, const Var& x, std::span<const AdapterRows> rows) {
  if (rows.size() == 1 || !x.value.defined()) return std::vector<Var>(rows.size(), x);
  std::vector<int64_t> counts;
  for (const AdapterRows& each : rows) counts.push_back(each.rows);
  return split_rows(tape, x, counts);
}

primitives::Matrix weight_of(Tape& tape, const AdapterRows& rows, const BoundWeight& weight) {
  return rows.adapter == nullptr ? weight.matrix(tape) : rows.adapter->weight(tape, weight);
}

const Adapter::Update* update_of(const AdapterRows& rows, const BoundWeight& weight) {
  return rows.adapter == nullptr ? nullptr : rows.adapter->update_of(weight);
}

bool AdaptedRows::any_replaces(Weights weights) const {
  return std::any_of(rows_.begin(), rows_.end(), [&](const AdapterRows& rows) {
    const auto replaced = [&](const BoundWeight* weight) { return rows.adapter->replaces(*weight); };
    return rows.adapter != nullptr && std::any_of(weights.begin(), weights.end(), replaced);
  });
}

std::vector<AdaptedRows::Piece> AdaptedRows::cut(Tape& tape, std::vector<Var> inputs, Weights weights) const {
  const auto weights_for = [&](const AdapterRows& rows) {
    std::vector<primitives::Matrix> matrices;
    for (const BoundWeight* weight : weights) matrices.push_back(weight_of(tape, rows, *weight));
    return matrices;
  };
  if (!any_replaces(weights)) return {{rows_, 0, true, std::move(inputs), weights_for({})}};
  if (rows_.size() == 1) return {{rows_, 0, true, std::move(inputs), weights_for(rows_.front())}};
  std::vector<Piece> pieces;
  int64_t first = 0;
  for (const AdapterRows& rows : rows_) {
    pieces.push_back({{&rows, 1}, first, false, {}, weights_for(rows)});
    first += rows.rows;
  }
  for (const Var& input : inputs) {
    const std::vector<Var> parts = parts_of(tape, input, rows_);
    for (size_t i = 0; i < pieces.size(); ++i) pieces[i].inputs.push_back(parts[i]);
  }
  return pieces;
}

std::vector<Var> AdaptedRows::by_pieces(Tape& tape, std::vector<Var> inputs, Weights weights,
                                        const PerPiece& f) const {
  const std::vector<Piece> pieces = cut(tape, std::move(inputs), weights);
  if (pieces.size() == 1) return f(pieces.front());
  std::vector<std::vector<Var>> results;  // by output, by piece
  for (const Piece& piece : pieces) {
    const std::vector<Var> outputs = f(piece);
    results.resize(outputs.size());
    for (size_t i = 0; i < outputs.size(); ++i) results[i].push_back(outputs[i]);
  }
  std::vector<Var> joined;
  for (const std::vector<Var>& parts : results) joined.push_back(primitives::concat_first(tape, parts));
  return joined;
}

}  // namespace temper::layers
