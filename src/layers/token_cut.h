#pragma once
#include <optional>
#include <span>
#include <vector>

#include "tensor/tensor.h"

namespace temper::layers {

// Consecutive tokens of a pass.
struct TokenRange {
  int64_t first = 0, count = 0;

  bool operator==(const TokenRange&) const = default;
};

// Which of a pass's tokens each of several context ranks has. Every token is one rank's, and a rank has its
// tokens in their order. All ranks know the whole cut.
class TokenCut {
 public:
  TokenCut() = default;  // one rank has all
  // `ranges`: of each rank, rising. `place`: this rank's.
  TokenCut(std::vector<std::vector<TokenRange>> ranges, int place);
  // Each part of the tokens by itself, of these lengths, which are multiples of `ranks`: every rank has as
  // many consecutive tokens of each.
  static TokenCut of_parts(std::span<const int64_t> lengths, int ranks, int place);

  // The same between groups of `members` ranks that follow one another, with two pieces of each part for a
  // group, chosen so that all groups have about the same cost: the piece that costs most with the one that
  // costs least, and so on. The members have as many consecutive ones each of a group's tokens of a part.
  // Lengths are multiples of 2 · `ranks`. `costs` of all tokens, in the parts' order.
  static TokenCut balanced(std::span<const int64_t> lengths, std::span<const int64_t> costs, int ranks,
                           int members, int place);

  bool is_whole() const { return ranges_.empty(); }
  int ranks() const { return is_whole() ? 1 : static_cast<int>(ranges_.size()); }
  int place() const { return place_; }
  std::span<const TokenRange> of(int rank) const { return ranges_[static_cast<size_t>(rank)]; }
  std::span<const TokenRange> own() const { return of(place_); }
  int64_t tokens() const;  // of all ranks
  int64_t tokens_of(int rank) const;
  // Whether the tokens of the ranks follow one another: those of rank 0, then those of rank 1, …
  bool is_in_order() const;
  bool is_even() const;  // whether all ranks have equally many

  // Of some tokens of the pass, in their order: which are this rank's, and where it has them.
  struct Chosen {
    std::vector<size_t> index;      // among those tokens
    std::vector<int32_t> position;  // among the rank's
  };
  Chosen chosen(std::span<const int32_t> tokens, int rank) const;

  // The rank's entries of dimension `dim`, [tokens] there, of a tensor that has those of all tokens: itself
  // where one rank has all, otherwise compact.
  Tensor own_of(const Tensor& all, int dim = 0) const;
  // The entries [tokens of `rank`, …] into their places among all tokens'.
  void put(int rank, const Tensor& its, const Tensor& all) const;
  // And back.
  void take(int rank, const Tensor& all, const Tensor& its) const;
  // [tokens, …] of all ranks, rank after rank, to the order of the tokens and back; itself where that is one.
  Tensor in_order(const Tensor& by_rank) const;
  Tensor by_rank(const Tensor& all) const;
  // Between groups of `members` ranks that follow one another: each has the tokens of its members. Whole
  // where one group has all ranks.
  TokenCut of_groups(int members) const;
  // Of the tokens of this rank's group alone, counted in their order, between its members.
  TokenCut in_group(int members) const;
  // Of consecutive tokens alone, counted from the first of them.
  TokenCut part(int64_t first, int64_t count) const;

 private:
  std::vector<std::vector<TokenRange>> ranges_;
  int place_ = 0;
};

}  // namespace temper::layers
