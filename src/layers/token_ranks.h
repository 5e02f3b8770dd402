#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "autograd/tape.h"
#include "collectives/group.h"
#include "layers/context_keys.h"
#include "layers/token_cut.h"

namespace temper::layers {

// Columns that stand next to each other, in `pieces` equal pieces (heads). Each of several ranks has as many
// pieces as the others or, where there are fewer pieces than ranks, neighbours have the same one.
struct ColumnBlock {
  int64_t columns = 0, pieces = 1;

  int64_t own_columns(int ranks) const;
  int64_t first_column(int rank, int ranks) const;  // of what the rank has
};

// Why this many ranks cannot have as many of these heads each, or could neither do so nor share each head
// between as many of them; empty where they can.
std::string refuses_heads(std::string_view what, int64_t heads, int ranks);
std::string refuses_shared_heads(std::string_view what, int64_t heads, int ranks);

// Ranks that have other tokens of the same documents each, as one of them sees them, and what they give each
// other where tokens meet: heads for tokens, for as long as a rank has all tokens of some heads instead of
// some tokens of all heads (Jacobs et al., "DeepSpeed Ulysses", 2023, arXiv:2309.14509); or each its own
// tokens to all. All of them call the same functions, forward and backward; gradients come back as they went.
// A rank that is alone has all tokens, and gets what it gives.
class TokenRanks {
 public:
  TokenRanks() = default;  // alone
  // The group must outlive the passes that are recorded; null: alone, and `cut` is whole.
  TokenRanks(collectives::Group* ranks, TokenCut cut);

  int ranks() const { return cut_.ranks(); }
  int place() const { return cut_.place(); }
  bool is_alone() const { return group_ == nullptr; }
  const TokenCut& cut() const { return cut_; }

  // The rank's pieces of each block, one after the other, of all tokens: [all tokens, own columns] for
  // x [own tokens, columns], whose columns are those of the blocks.
  struct Heads {
    Var x;  // [own tokens, columns]
    std::vector<ColumnBlock> blocks;
  };
  std::vector<Var> own_heads(Tape& tape, const std::vector<Heads>& all) const;
  // And back, of one block that has a piece for every rank: [own tokens, columns] for
  // y [all tokens, own columns].
  Var own_tokens(Tape& tape, const Var& y) const;
  // The same of [tokens, heads, dim] each.
  std::vector<Var> own_of_heads(Tape& tape, const std::vector<Var>& heads) const;
  Var tokens_of_heads(Tape& tape, const Var& y) const;
  // [all tokens, columns], of x [own tokens, columns].
  Var all_tokens(Tape& tape, const Var& x) const;
  // [own tokens + those that come, columns], of x [own tokens, columns].
  Var with_fetched(Tape& tape, const Var& x, const TokenFetch& fetch) const;
  // [ranks · n, …], rank after rank, of each one's [n, …], compact. Without a gradient.
  Tensor of_all_ranks(const std::string& name, const Tensor& own) const {
    return is_alone() ? own : group_->all_gather(name, own);
  }
  // The rank's rows of each block of rows of a parameter, [rows, …].
  Var own_rows(Tape& tape, const Var& parameter, const std::vector<ColumnBlock>& blocks) const;

 private:
  // What travels: of each of several tensors the columns that a rank has.
  struct Share {
    int64_t width = 0;  // of x
    std::vector<ColumnBlock> blocks;
  };
  // [own tokens, width] each to [all tokens, own columns of all] and back, where what several ranks had is
  // summed.
  Tensor spread(const std::vector<Tensor>& all, const std::vector<Share>& shares) const;
  std::vector<Tensor> collect(const Tensor& own, const std::vector<Share>& shares) const;

  collectives::Group* group_ = nullptr;
  TokenCut cut_;
};

}  // namespace temper::layers
