#include "layers/vocabulary.h"

#include <algorithm>

#include "base/error.h"
#include "ops/sample/sample.h"
#include "ops/token_log_probs/token_log_probs.h"
#include "primitives/collectives.h"
#include "primitives/primitives.h"

namespace temper::layers {
namespace {

WeightSpec spec_of(const VocabularySize& size, const char* name, const std::string& source, LoraRole lora) {
  return {.name = name,
          .shape = {size.tokens, size.hidden},
          .axes = {WeightAxis::divided("vocab"), "hidden"},
          .sources = {{source, size.tokens}},
          .lora = lora};
}

}  // namespace

void declare_embedding(WeightTable& table, const VocabularySize& size, const std::string& source_scope) {
  table.add(spec_of(size, "embedding.weight", source_scope + "embed_tokens.weight", LoraRole::kEmbedding));
}

void declare_head(WeightTable& table, const VocabularySize& size) {
  WeightSpec head = spec_of(size, "head.weight", "lm_head.weight", LoraRole::kHead);
  size.tied ? table.tie(std::move(head), "embedding.weight") : table.add(std::move(head));
}

void ValueHead::declare(WeightTable& table, int64_t hidden) {
  table.add({.name = "head.weight",
             .shape = {1, hidden},
             .axes = {"value", "hidden"},
             .sources = {{"score.weight", 1}},
             .zeros = true,
             .may_be_new = true});
  table.ignore("lm_head.weight", "the model gives values in place of logits");
}

Var ValueHead::operator()(Tape& tape, const Var& hidden, const AdapterRows& rows) const {
  namespace p = primitives;
  const Var weight = weight_of(tape, rows, weight_).value;
  const Var products = p::mul(tape, p::cast(tape, hidden, DType::kF32), p::cast(tape, weight, DType::kF32));
  return p::sum_last(tape, products);
}

void name_embedding_ops(OpScope& ops, const VocabularySize& size) {
  ops.use<ops::Embedding>("embedding", {ops.dtype(), size.hidden});
  // An adapter's matrix behind its table, of whatever rank.
  ops.use<ops::Linear>("embedding", {ops.dtype(), 1, size.hidden, false});
}

void name_head_ops(OpScope& ops, const VocabularySize& size, int tensor) {
  const int64_t own = div_exact(size.tokens, tensor);
  ops.linear("head", size.hidden, own, false);
  ops.use<ops::Sample>("head", {ops.dtype(), size.tokens});
  ops.use<ops::TokenLogProbs>("head", {ops.dtype(), size.tokens});
  ops.use<ops::CrossEntropy>("head", {ops.dtype(), size.hidden, own});
}

Embedding::Embedding(const Binding& binding, const VocabularySize& size)
    : table_(binding.weight("embedding.weight")),
      kernel_(binding.kernel<ops::Embedding>("embedding")),
      update_(binding.kernel<ops::Linear>("embedding")),
      first_(binding.ranks.tensor_place() * (size.tokens / binding.ranks.tensor_ranks())) {}

Var Embedding::operator()(Tape& tape, const Tensor& ids, const AdaptedRows& rows) const {
  const auto adapted = [&](const AdapterRows& each) {
    return each.adapter != nullptr && (each.adapter->replaces(table_) || update_of(each, table_) != nullptr);
  };
  if (std::none_of(rows.all().begin(), rows.all().end(), adapted))
    return ops::embedding(tape, kernel_, ids, table_.leaf(tape), first_);
  std::vector<Var> pieces;
  int64_t first = 0;
  for (const AdapterRows& each : rows.all()) {
    const Tensor own_ids = ids.narrow(0, first, each.rows);
    Var y = ops::embedding(tape, kernel_, own_ids, weight_of(tape, each, table_).value, first_);
    if (const Adapter::Update* update = update_of(each, table_)) {
      const ParameterStore& own = each.adapter->parameters();
      const Adapter::Slice& slice = update->slices.front();
      const Var low = ops::embedding(tape, kernel_, own_ids, tape.leaf(own[update->a]), first_);
      const Var change = ops::linear(tape, update_, low, tape.leaf(own[slice.b]));
      y = primitives::add(tape, y, primitives::scale(tape, change, slice.scale));
    }
    pieces.push_back(y);
    first += each.rows;
  }
  return pieces.size() == 1 ? pieces.front() : primitives::concat_first(tape, pieces);
}

Head::Head(const Binding& binding, const VocabularySize& size)
    : linear_(binding, "head", false),
      loss_(binding.kernel<ops::CrossEntropy>("head")),
      factor_(static_cast<float>(1 / size.logits_divisor)),
      ranks_{binding.ranks.tensor,
             binding.ranks.tensor_place() * (size.tokens / binding.ranks.tensor_ranks())} {}

Var Head::divided(Tape& tape, const Var& hidden) const {
  return factor_ == 1 ? hidden : primitives::scale(tape, hidden, factor_);
}

Var Head::logits(Tape& tape, const Var& hidden, const AdaptedRows& rows) const {
  const Var own = own_logits(tape, hidden, rows);
  return ranks_.group == nullptr ? own : primitives::columns_of_ranks(tape, own, *ranks_.group);
}

bool Head::trains(const AdapterRows& rows) const {
  const BoundWeight& weight = linear_.weight();
  return weight.parameter().grad != nullptr ||
         (rows.adapter != nullptr && (update_of(rows, weight) != nullptr || rows.adapter->replaces(weight)));
}

// An adapted head is one product with wider rows: [hidden | scale · hidden Aᵀ] [weight | B]ᵀ.
ops::CrossEntropy::Vars Head::loss(Tape& tape, const Var& given, const Tensor& targets,
                                   const ops::CrossEntropy::Factors& factors, const AdapterRows& rows) const {
  invariant(rows.adapter == nullptr || rows.rows == given.shape()[0], "a loss is of one adapter's rows");
  const Var hidden = divided(tape, given);
  const Var weight = weight_of(tape, rows, linear_.weight()).value;
  const Adapter::Update* update = update_of(rows, linear_.weight());
  if (update == nullptr) return ops::cross_entropy(tape, loss_, hidden, weight, targets, factors, ranks_);
  const ParameterStore& own = rows.adapter->parameters();
  const Adapter::Slice& slice = update->slices.front();
  const Var low =
      ops::linear(tape, linear_.kernel(), linear_.dropped(tape, rows, hidden), tape.leaf(own[update->a]));
  const Var wide = primitives::concat_last(tape, hidden, primitives::scale(tape, low, slice.scale));
  return ops::cross_entropy(tape, loss_, wide, primitives::concat_last(tape, weight, tape.leaf(own[slice.b])),
                            targets, factors, ranks_);
}

}  // namespace temper::layers
