#pragma once
#include <memory>
#include <span>
#include <vector>

#include "autograd/tape.h"
#include "collectives/group.h"
#include "primitives/primitives.h"

namespace temper::channels {

// The way of tokens to the ranks that have their experts, and back: each rank has as many consecutive experts
// as another. A token goes once to a rank, whatever the number of its experts there; there it becomes one row
// for each of them. All ranks make one at the same time, and call the same functions in the same order.
class TokenExchange {
 public:
  // Consecutive tokens of one kind, which the receiver must distinguish from those of others.
  struct Kind {
    int32_t kind = 0, tokens = 0;
  };
  // ids [tokens, top_k] int32: the chosen of all `experts`. Waits for them where they are on a device, and
  // tells them to all ranks, so that each knows what comes. `kinds`: of all tokens in their order; either all
  // ranks give some or none does.
  TokenExchange(collectives::Group& ranks, const Tensor& ids, int64_t experts,
                std::span<const Kind> kinds = {});

  // The experts of the rows that are here, as this rank counts its own: [rows, 1] int32.
  const Tensor& ids() const { return own_ids_; }
  // The rows that are here whose tokens are of one kind, and their experts.
  struct RowsOfKind {
    std::vector<int32_t> rows, experts;
  };
  const std::vector<RowsOfKind>& by_kind() const { return by_kind_; }  // from kind 0 on
  // The way there, in two steps: what is recorded between them computes while tokens travel, and its gradient
  // while theirs do. Only one exchange of the ranks is on its way at a time.
  struct OnTheirWay {
    Var tokens, weights;               // [tokens here, hidden] and [choices here, 1], when they have arrived
    std::vector<Tensor> leaving = {};  // [tokens sent, hidden] and [choices sent, 1], read until then
    std::shared_ptr<std::vector<Tensor>> back = {};  // the gradients of `leaving`, in backward
  };
  // x [tokens, hidden], weights [tokens, top_k].
  OnTheirWay send(Tape& tape, const Var& x, const Var& weights) const;
  struct Rows {
    Var tokens, weights;  // [rows, hidden], [rows, 1]
  };
  Rows receive(Tape& tape, const OnTheirWay& sent) const;
  // What the rows gave, [rows, hidden], added up for each token: [tokens, hidden].
  Var combine(Tape& tape, const Var& y) const;

 private:
  // How many of something goes to each rank and comes from it.
  struct Counts {
    std::vector<int64_t> send, receive;
    Counts back() const { return {receive, send}; }
    int64_t sent() const;
    int64_t received() const;
  };
  void leave(const std::vector<uint16_t>& ids, int64_t tokens);
  void arrive(const std::vector<std::vector<uint16_t>>& all, const std::vector<std::vector<Kind>>& kinds);
  Tensor move(const char* name, const Tensor& rows, const Counts& counts) const {
    return ranks_.all_to_all(name, rows, counts.send, counts.receive);
  }

  collectives::Group& ranks_;
  int64_t experts_, top_k_;
  std::vector<uint8_t> owners_;  // by expert: the rank that has it
  Counts tokens_, choices_;
  primitives::ChosenRows sent_;      // tokens, by the rank that they go to
  primitives::ChosenRows chosen_;    // choices (token · top_k + j), by the rank that has the expert
  primitives::ChosenRows expanded_;  // of the tokens that came, one for each of their experts here
  Tensor own_ids_;
  std::vector<RowsOfKind> by_kind_;
};

}  // namespace temper::channels
