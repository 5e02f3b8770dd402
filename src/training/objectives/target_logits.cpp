#include "training/objectives/target_logits.h"

#include <algorithm>

#include "primitives/primitives.h"
#include "quantizers/quantizers.h"
#include "training/passes/divided_tokens.h"

namespace temper::training {
namespace {

namespace p = primitives;

constexpr int64_t kLogitsAtOnce = int64_t{1} << 24;

}  // namespace

std::vector<Targets> cut_targets(const Tensor& targets, int64_t vocab) {
  const auto most = static_cast<size_t>(std::max<int64_t>(1, kLogitsAtOnce / vocab));
  const auto all = targets.values<int32_t>();
  std::vector<Targets> parts;
  std::vector<int32_t> positions, ids;
  const auto push = [&] {
    if (!ids.empty()) parts.push_back({Tensor::from(positions), Tensor::from(ids)});
    positions.clear();
    ids.clear();
  };
  for (size_t t = 0; t < all.size(); ++t) {
    if (all[t] == data::kIgnore) continue;
    positions.push_back(static_cast<int32_t>(t));
    ids.push_back(all[t]);
    if (ids.size() == most) push();
  }
  push();
  return parts;
}

Var logits_of(Tape& tape, const layers::Decoder& model, const Var& hidden, const Tensor& positions,
              layers::AdapterRows rows) {
  const Var own = p::gather_rows(tape, hidden, p::ChosenRows(positions, hidden.shape()[0], tape.recording()));
  rows.rows = positions.numel();
  rows.pieces.clear();
  rows.first_row += positions.data<int32_t>()[0];  // dropout differs from part to part
  return model.own_logits(tape, own, rows);
}

namespace {

// A rank's rows of a table that has one for each of some tokens of a pass, to those of all of its context
// ranks.
template <class T>
Tensor all_rows(const layers::Decoder& model, const layers::TokenCut& cut, const DividedTokens& tokens,
                const Tensor& own) {
  if (cut.is_whole()) return own;
  const int64_t width = own.dim(1);
  const auto values = own.values<T>();
  const auto ranks = model.ranks().context->gather("rows of some tokens", std::span<const T>(values));
  const Tensor all = Tensor::empty({tokens.count(), width}, own.dtype(), MemoryTag::kData);
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const std::vector<size_t> index = tokens.index_of(static_cast<int>(rank));
    for (size_t i = 0; i < index.size(); ++i)
      std::copy_n(ranks[rank].data() + static_cast<int64_t>(i) * width, width,
                  all.data<T>() + static_cast<int64_t>(index[i]) * width);
  }
  return all;
}

// Of some targets of a pass, on all of its context ranks, which compute their own.
losses::TopTokens top_of(Tape& tape, const layers::Decoder& teacher, const Var& hidden,
                         const layers::TokenCut& cut, const Targets& part, int64_t top_k,
                         double temperature) {
  const DividedTokens tokens(teacher, cut, part.positions.values<int32_t>());
  losses::TopTokens own{Tensor::empty({0, top_k}, DType::kI32, MemoryTag::kData),
                        Tensor::empty({0, top_k}, DType::kF32, MemoryTag::kData),
                        Tensor::empty({0, 1}, DType::kF32, MemoryTag::kData)};
  if (!tokens.positions().empty())
    own = losses::top_tokens(logits_of(tape, teacher, hidden, Tensor::from(tokens.positions()), {}).value,
                             top_k, temperature, teacher.vocabulary_ranks());
  return {all_rows<int32_t>(teacher, cut, tokens, own.ids), all_rows<float>(teacher, cut, tokens, own.logits),
          all_rows<float>(teacher, cut, tokens, own.rest)};
}

}  // namespace

void read_top_tokens(const layers::Decoder& teacher, const std::vector<data::PackedRow>& rows, int64_t top_k,
                     double temperature, int64_t micro_batch_tokens,
                     const std::function<void(const losses::TopTokens& some)>& use) {
  const quantizers::QuantizersOff off(teacher.quantizers());
  for_each_pass(teacher, nullptr, rows, micro_batch_tokens,
                [&](Tape& tape, const Var& hidden, const MicroBatch& batch, const layers::AdapterRows&) {
                  for (const Targets& part : cut_targets(batch.targets, teacher.config().vocab_size))
                    use(top_of(tape, teacher, hidden, batch.input.cut, part, top_k, temperature));
                });
}

}  // namespace temper::training
