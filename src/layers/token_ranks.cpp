#include "layers/token_ranks.h"

#include "base/error.h"
#include "layers/glue.h"
#include "primitives/primitives.h"

namespace temper::layers {
namespace {

constexpr const char* kThere = "heads for tokens";
constexpr const char* kBack = "tokens for heads";

int64_t own_columns_of(const std::vector<ColumnBlock>& blocks, int ranks) {
  int64_t columns = 0;
  for (const ColumnBlock& block : blocks) columns += block.own_columns(ranks);
  return columns;
}

// f(first column of the block's own piece in the whole, in what the rank has, columns).
template <class F>
void for_each_block(const std::vector<ColumnBlock>& blocks, int rank, int ranks, const F& f) {
  int64_t whole = 0, own = 0;
  for (const ColumnBlock& block : blocks) {
    const int64_t columns = block.own_columns(ranks);
    f(whole + block.first_column(rank, ranks), own, columns);
    whole += block.columns;
    own += columns;
  }
}

bool has_copies(const std::vector<ColumnBlock>& blocks, int ranks) {
  for (const ColumnBlock& block : blocks)
    if (block.pieces < ranks) return true;
  return false;
}

}  // namespace

int64_t ColumnBlock::own_columns(int ranks) const {
  return div_exact(columns, pieces) * (pieces < ranks ? 1 : div_exact(pieces, ranks));
}

int64_t ColumnBlock::first_column(int rank, int ranks) const {
  if (pieces < ranks) return columns / pieces * (rank / div_exact(ranks, pieces));
  return own_columns(ranks) * rank;
}

std::string refuses_heads(std::string_view what, int64_t heads, int ranks) {
  if (heads % ranks == 0) return {};
  return fmt::format("{} {} cannot be divided equally between {} ranks", heads, what, ranks);
}

std::string refuses_shared_heads(std::string_view what, int64_t heads, int ranks) {
  return ranks % heads == 0 ? std::string() : refuses_heads(what, heads, ranks);
}

TokenRanks::TokenRanks(collectives::Group* ranks, TokenCut cut) : group_(ranks), cut_(std::move(cut)) {
  invariant(cut_.is_whole() == is_alone(), "tokens are cut between several ranks");
  invariant(is_alone() || (cut_.ranks() == group_->size() && cut_.place() == group_->rank()),
            "the tokens of a pass are cut between its ranks");
}

Tensor TokenRanks::spread(const std::vector<Tensor>& all, const std::vector<Share>& shares) const {
  const int64_t own_tokens = cut_.tokens_of(place());
  int64_t width = 0;
  for (const Share& share : shares) width += own_columns_of(share.blocks, ranks());
  const Tensor packed = Tensor::empty({ranks() * own_tokens, width}, all.front().dtype(),
                                      MemoryTag::kActivations, all.front().device());
  std::vector<int64_t> send, receive;
  for (int rank = 0; rank < ranks(); ++rank) {
    send.push_back(own_tokens);
    receive.push_back(cut_.tokens_of(rank));
    const Tensor to = packed.narrow(0, rank * own_tokens, own_tokens);
    int64_t at = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      for_each_block(shares[i].blocks, rank, ranks(), [&](int64_t whole, int64_t own, int64_t columns) {
        to.narrow(1, at + own, columns).copy_from(all[i].narrow(1, whole, columns));
      });
      at += own_columns_of(shares[i].blocks, ranks());
    }
  }
  return cut_.in_order(group_->all_to_all(kThere, packed, send, receive));
}

std::vector<Tensor> TokenRanks::collect(const Tensor& own, const std::vector<Share>& shares) const {
  const int64_t own_tokens = cut_.tokens_of(place());
  std::vector<int64_t> send, receive;
  for (int rank = 0; rank < ranks(); ++rank) {
    send.push_back(cut_.tokens_of(rank));
    receive.push_back(own_tokens);
  }
  const Tensor received = group_->all_to_all(kBack, cut_.by_rank(own).contiguous(), send, receive);
  std::vector<Tensor> all;
  int64_t at = 0;
  for (const Share& share : shares) {
    const Tensor& whole = all.emplace_back(
        Tensor::empty({own_tokens, share.width}, own.dtype(), MemoryTag::kActivations, own.device()));
    if (has_copies(share.blocks, ranks())) whole.fill_zero();
    for (int rank = 0; rank < ranks(); ++rank) {
      const Tensor from = received.narrow(0, rank * own_tokens, own_tokens);
      for_each_block(share.blocks, rank, ranks(), [&](int64_t first, int64_t its, int64_t columns) {
        const Tensor to = whole.narrow(1, first, columns), part = from.narrow(1, at + its, columns);
        if (!has_copies(share.blocks, ranks())) return to.copy_from(part);
        const Tensor sum = to.contiguous(MemoryTag::kWorkspace);
        add_in_place(sum, part.contiguous(MemoryTag::kWorkspace));
        to.copy_from(sum);
      });
    }
    at += own_columns_of(share.blocks, ranks());
  }
  return all;
}

std::vector<Var> TokenRanks::own_heads(Tape& tape, const std::vector<Heads>& all) const {
  std::vector<Tensor> values;
  std::vector<Share> shares;
  std::vector<const Var*> inputs;
  std::vector<std::shared_ptr<GradSlot>> slots;
  std::vector<int64_t> widths;
  for (const Heads& heads : all) {
    values.push_back(heads.x.value);
    shares.push_back({heads.x.shape()[1], heads.blocks});
    inputs.push_back(&heads.x);
    slots.push_back(heads.x.slot);
    widths.push_back(own_columns_of(heads.blocks, ranks()));
  }
  const Var packed =
      tape.record(spread(values, shares), inputs, [these = *this, shares, slots](const Tensor& grad) {
        const std::vector<Tensor> grads = these.collect(grad, shares);
        for (size_t i = 0; i < slots.size(); ++i)
          if (slots[i]) slots[i]->add(grads[i]);
      });
  return widths.size() == 1 ? std::vector{packed} : primitives::split(tape, packed, 1, widths);
}

Var TokenRanks::own_tokens(Tape& tape, const Var& y) const {
  const int64_t columns = y.shape()[1] * ranks();
  const std::vector<Share> shares{{columns, {{columns, ranks()}}}};
  return tape.record(collect(y.value, shares).front(), {&y},
                     [these = *this, shares, slot = y.slot](const Tensor& grad) {
                       slot->add(these.spread({grad}, shares));
                     });
}

Var TokenRanks::all_tokens(Tape& tape, const Var& x) const {
  if (is_alone()) return x;
  invariant(cut_.is_even(), "ranks gather equally many tokens");
  const Tensor all = cut_.in_order(group_->all_gather("keys of all tokens", x.value.contiguous()));
  return tape.record(all, {&x}, [these = *this, slot = x.slot](const Tensor& grad) {
    slot->add(these.group_->reduce_scatter("gradients of keys", these.cut_.by_rank(grad).contiguous()));
  });
}

Var TokenRanks::with_fetched(Tape& tape, const Var& x, const TokenFetch& fetch) const {
  const Var given = primitives::gather_rows(tape, x, fetch.given);
  const Tensor came = group_->all_to_all("keys of windows", given.value, fetch.send, fetch.receive);
  const Var others = tape.record(
      came, {&given},
      [group = group_, slot = given.slot, send = fetch.send, receive = fetch.receive](const Tensor& grad) {
        slot->add(group->all_to_all("gradients of keys of windows", grad.contiguous(), receive, send));
      });
  return primitives::concat_first(tape, {x, others});
}

std::vector<Var> TokenRanks::own_of_heads(Tape& tape, const std::vector<Var>& heads) const {
  if (is_alone()) return heads;
  std::vector<Heads> all;
  for (const Var& x : heads)
    all.push_back({merge_heads(tape, x), {{x.shape()[1] * x.shape()[2], x.shape()[1]}}});
  std::vector<Var> own = own_heads(tape, all);
  for (size_t i = 0; i < own.size(); ++i) own[i] = split_heads(tape, own[i], heads[i].shape()[2]);
  return own;
}

Var TokenRanks::tokens_of_heads(Tape& tape, const Var& y) const {
  if (is_alone()) return y;
  return split_heads(tape, own_tokens(tape, merge_heads(tape, y)), y.shape()[2]);
}

Var TokenRanks::own_rows(Tape& tape, const Var& parameter, const std::vector<ColumnBlock>& blocks) const {
  if (is_alone()) return parameter;
  std::vector<Var> parts;
  for_each_block(blocks, place(), ranks(), [&](int64_t first, int64_t, int64_t rows) {
    parts.push_back(primitives::narrow(tape, parameter, 0, first, rows));
  });
  return parts.size() == 1 ? parts.front() : primitives::concat_first(tape, parts);
}

}  // namespace temper::layers
