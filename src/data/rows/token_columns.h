#pragma once
#include <array>
#include <cstdint>
#include <limits>
#include <tuple>
#include <vector>

namespace temper::data {

// Numbers of some tokens, from the engine that samples them to the loss: a column for each kind of number,
// which has an entry for every token or, where the numbers are unknown, none. A new kind is a member and an
// entry of kAll: whatever copies or sends columns iterates that list.
struct TokenColumns {
  using Column = std::vector<float>;

  // By the engine that sampled, over the whole vocabulary; neither penalty nor top-k, top-p or min-p changes
  // it.
  Column rollout_log_probs = {};
  // The log of the probability mass that top-k, top-p and min-p kept (ops::NextToken): where
  // log-probabilities are at the temperature of sampling and there is no penalty, rollout_log_probs - kept
  // are those of the truncated distribution. Of a token that was forced: of what would have been sampled.
  Column kept = {};
  // By training's passes over the weights that sampled, and over the reference. NaN: the weights of the
  // update are still those that sampled, and it is the token's own log-probability.
  Column old_log_probs = {}, reference_log_probs = {};
  Column advantages = {};
  Column values = {};   // a critic's, before each token is sampled
  Column returns = {};  // that the critic is to learn

  struct Kind {
    Column TokenColumns::*column;
    float unknown;  // the entry of a token whose number is unknown
  };
  static constexpr std::array<Kind, 7> kAll{
      {{&TokenColumns::rollout_log_probs, 0},
       {&TokenColumns::kept, 0},
       {&TokenColumns::old_log_probs, std::numeric_limits<float>::quiet_NaN()},
       {&TokenColumns::reference_log_probs, 0},
       {&TokenColumns::advantages, 0},
       {&TokenColumns::values, 0},
       {&TokenColumns::returns, 0}}};

  // References to all columns, as a tuple.
  template <class Columns>
  static auto all_of(Columns& columns) {
    return std::apply([&](const auto&... kind) { return std::tie(columns.*kind.column...); }, kAll);
  }

  bool fits(int64_t tokens) const;  // each column is empty or has that many numbers
  // Of one more token what `from` knows of that one of its tokens. All columns grow.
  void append(const TokenColumns& from, size_t token);
  // Of more tokens what `from` knows of its own, which must know of the same kinds.
  void append(const TokenColumns& from);
  // Tokens of which nothing is known, up to that many, in the columns that are not empty.
  void extend(int64_t tokens);
};
static_assert(sizeof(TokenColumns) == TokenColumns::kAll.size() * sizeof(TokenColumns::Column));

}  // namespace temper::data
