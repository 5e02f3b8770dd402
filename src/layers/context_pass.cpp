#include "layers/context_pass.h"

#include "base/error.h"
#include "primitives/primitives.h"
#include "weights/mesh.h"

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
  return fmt::format("{} {} cannot be divided equally between {} ranks; set context to {}", heads, what,
                     ranks, divisors_text(heads));
}

std::string refuses_shared_heads(std::string_view what, int64_t heads, int ranks) {
  return ranks % heads == 0 ? std::string() : refuses_heads(what, heads, ranks);
}

ContextPass::ContextPass(collectives::Group& ranks, TokenCut cut, AdaptedRows rows,
                         std::optional<ContextKeys> keys)
    : group_(&ranks), cut_(std::move(cut)), rows_(std::move(rows)), keys_(std::move(keys)) {
  invariant(cut_.ranks() == ranks.size() && cut_.place() == ranks.rank(),
            "the tokens of a pass are cut between its context ranks");
}

Tensor ContextPass::spread(const std::vector<Tensor>& all, const std::vector<Share>& shares) const {
  const int64_t own_tokens = cut_.tokens_of(place()), tokens = cut_.tokens();
  int64_t width = 0;
  for (const Share& share : shares) width += own_columns_of(share.blocks, ranks());
  const auto empty = [&](int64_t rows) {
    return Tensor::empty({rows, width}, all.front().dtype(), MemoryTag::kActivations, all.front().device());
  };
  const Tensor packed = empty(ranks() * own_tokens);
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
  const Tensor received = group_->all_to_all(kThere, packed, send, receive);
  if (cut_.is_in_order()) return received;
  const Tensor ordered = empty(tokens);
  int64_t before = 0;
  for (int rank = 0; rank < ranks(); before += receive[static_cast<size_t>(rank++)])
    cut_.put(rank, received.narrow(0, before, receive[static_cast<size_t>(rank)]), ordered);
  return ordered;
}

std::vector<Tensor> ContextPass::collect(const Tensor& own, const std::vector<Share>& shares) const {
  const int64_t own_tokens = cut_.tokens_of(place());
  Tensor packed = own.contiguous();
  std::vector<int64_t> send, receive;
  for (int rank = 0; rank < ranks(); ++rank) {
    send.push_back(cut_.tokens_of(rank));
    receive.push_back(own_tokens);
  }
  if (!cut_.is_in_order()) {
    packed = Tensor::empty(own.shape(), own.dtype(), MemoryTag::kActivations, own.device());
    int64_t before = 0;
    for (int rank = 0; rank < ranks(); before += send[static_cast<size_t>(rank++)])
      cut_.take(rank, own, packed.narrow(0, before, send[static_cast<size_t>(rank)]));
  }
  const Tensor received = group_->all_to_all(kBack, packed, send, receive);
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

std::vector<Var> ContextPass::own_heads(Tape& tape, const std::vector<Heads>& all) const {
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
      tape.record(spread(values, shares), inputs, [this_pass = *this, shares, slots](const Tensor& grad) {
        const std::vector<Tensor> grads = this_pass.collect(grad, shares);
        for (size_t i = 0; i < slots.size(); ++i)
          if (slots[i]) slots[i]->add(grads[i]);
      });
  return widths.size() == 1 ? std::vector{packed} : primitives::split(tape, packed, 1, widths);
}

Var ContextPass::own_tokens(Tape& tape, const Var& y) const {
  const int64_t columns = y.shape()[1] * ranks();
  const std::vector<Share> shares{{columns, {{columns, ranks()}}}};
  return tape.record(collect(y.value, shares).front(), {&y},
                     [this_pass = *this, shares, slot = y.slot](const Tensor& grad) {
                       slot->add(this_pass.spread({grad}, shares));
                     });
}

Var ContextPass::all_tokens(Tape& tape, const Var& x) const {
  const auto like = [](const Tensor& value, int64_t rows) {
    Shape shape = value.shape();
    shape[0] = rows;
    return Tensor::empty(shape, value.dtype(), MemoryTag::kActivations, value.device());
  };
  const int64_t own = x.shape()[0];
  Tensor all = group_->all_gather("keys of all tokens", x.value.contiguous());
  if (!cut_.is_in_order()) {
    const Tensor gathered = all;
    all = like(gathered, cut_.tokens());
    for (int rank = 0; rank < ranks(); ++rank) cut_.put(rank, gathered.narrow(0, rank * own, own), all);
  }
  return tape.record(all, {&x}, [this_pass = *this, own, like, slot = x.slot](const Tensor& grad) {
    const TokenCut& cut = this_pass.cut_;
    Tensor packed = grad.contiguous();
    if (!cut.is_in_order()) {
      packed = like(grad, grad.dim(0));
      for (int rank = 0; rank < cut.ranks(); ++rank) cut.take(rank, grad, packed.narrow(0, rank * own, own));
    }
    slot->add(this_pass.group_->reduce_scatter("gradients of keys", packed));
  });
}

Var ContextPass::own_rows(Tape& tape, const Var& parameter, const std::vector<ColumnBlock>& blocks) const {
  std::vector<Var> parts;
  for_each_block(blocks, place(), ranks(), [&](int64_t first, int64_t, int64_t rows) {
    parts.push_back(primitives::narrow(tape, parameter, 0, first, rows));
  });
  return parts.size() == 1 ? parts.front() : primitives::concat_first(tape, parts);
}

}  // namespace temper::layers
