#include "losses/vocabulary_rows.h"

#include "primitives/collectives.h"
#include "primitives/primitives.h"

namespace temper::losses {
namespace p = primitives;

Var VocabularyRows::sum(Tape& tape, const Var& x) const {
  const Var own = p::sum_last(tape, x);
  return ranks_.group == nullptr ? own : p::sum_of_ranks(tape, own, *ranks_.group);
}

Var VocabularyRows::largest(Tape& tape, const Var& x) const {
  const Var own = p::max_last(tape, x);
  if (ranks_.group == nullptr) return own;
  return p::max_last(tape, p::columns_of_ranks(tape, tape.constant(own.value), *ranks_.group));
}

Var VocabularyRows::shifted(Tape& tape, const Var& logits, double temperature) const {
  Var scores = p::cast(tape, logits, DType::kF32);
  if (temperature != 1) scores = p::scale(tape, scores, static_cast<float>(1 / temperature));
  return p::sub(tape, scores, largest(tape, scores));
}

Var VocabularyRows::read(Tape& tape, const Var& x) const {
  return ranks_.group == nullptr ? x : p::read_by_ranks(tape, x, *ranks_.group);
}

VocabularyRows::Own VocabularyRows::own(const Tensor& ids, int64_t width) const {
  const Own own{Tensor::zeros(ids.shape(), DType::kI32), Tensor::zeros(ids.shape(), DType::kF32)};
  const auto all = ids.values<int32_t>();
  for (size_t i = 0; i < all.size(); ++i) {
    const int64_t column = all[i] - ranks_.first;
    if (column < 0 || column >= width) continue;
    own.columns.data<int32_t>()[i] = static_cast<int32_t>(column);
    own.here.data<float>()[i] = 1;
  }
  return own;
}

Var VocabularyRows::at(Tape& tape, const Var& x, const Tensor& ids) const {
  const Device device = x.value.device();
  if (ranks_.group == nullptr) return p::take_last(tape, x, ids.on(device, MemoryTag::kData));
  const Own known = own(ids, x.shape()[1]);
  const Var taken = p::take_last(tape, x, known.columns.on(device, MemoryTag::kData));
  const Tensor here = known.here.on(device, MemoryTag::kData).reshape(taken.shape());
  return p::sum_of_ranks(tape, p::mul(tape, taken, tape.constant(here)), *ranks_.group);
}

Var VocabularyRows::log_sum_of_others(Tape& tape, const Var& x, const Tensor& ids) const {
  constexpr float kNone = -1e30f;  // exp of it is 0, and differences of it are 0, not NaN
  const Device device = x.value.device();
  const int64_t width = x.shape()[1];
  const Own known = own(ids, width);
  Tape quiet(false);
  const Var low = p::scale(quiet, quiet.constant(known.here.on(device, MemoryTag::kData)), kNone);
  const Tensor named = p::put_last(low.value, known.columns.on(device, MemoryTag::kData), width);
  const Var others = p::add(tape, x, tape.constant(named)), most = largest(tape, others);
  return p::add(tape, p::log(tape, sum(tape, p::exp(tape, p::sub(tape, others, most)))), most);
}

}  // namespace temper::losses
