#include "training/objectives/target_logits.h"

#include <algorithm>

#include "primitives/primitives.h"
#include "quantizers/quantizers.h"

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
  rows.first_row += positions.data<int32_t>()[0];  // dropout differs from part to part
  return model.own_logits(tape, own, rows);
}

void read_top_tokens(const layers::Decoder& teacher, const std::vector<data::PackedRow>& rows, int64_t top_k,
                     double temperature, int64_t micro_batch_tokens,
                     const std::function<void(const losses::TopTokens& some)>& use) {
  const quantizers::QuantizersOff off(teacher.quantizers());
  for_each_pass(teacher, nullptr, rows, micro_batch_tokens,
                [&](Tape& tape, const Var& hidden, const MicroBatch& batch, const layers::AdapterRows&) {
                  for (const Targets& part : cut_targets(batch.targets, teacher.config().vocab_size)) {
                    const Var logits = logits_of(tape, teacher, hidden, part.positions, {});
                    use(losses::top_tokens(logits.value, top_k, temperature, teacher.vocabulary_ranks()));
                  }
                });
}

}  // namespace temper::training
