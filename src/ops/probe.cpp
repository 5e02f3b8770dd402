#include "ops/probe.h"

#include "base/random.h"
#include "base/threads/threads.h"

namespace temper::ops {

Tensor probe_values(const HardwareFacts& facts, uint64_t seed, const Shape& shape, DType dtype,
                    double scale) {
  const Random random(seed, RandomPurpose::kData);
  const Tensor wide = Tensor::empty(shape, DType::kF32);
  float* values = wide.data<float>();
  parallel_ranges(wide.numel(), 4096, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      values[i] = static_cast<float>(scale * (2 * random.uniform(static_cast<uint64_t>(i)) - 1));
  });
  return wide.to(dtype).on(facts.device);
}

Tensor probe_ints(const HardwareFacts& facts, uint64_t seed, int64_t count, int64_t below) {
  const Random random(seed, RandomPurpose::kData);
  std::vector<int32_t> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(
        static_cast<int32_t>(random.below(static_cast<uint64_t>(below), static_cast<uint64_t>(i))));
  return Tensor::from(values).on(facts.device);
}

std::vector<Tensor> as_float(const std::vector<Tensor>& tensors) {
  std::vector<Tensor> all;
  for (const Tensor& tensor : tensors) all.push_back(tensor.on({}).to(DType::kF32).contiguous());
  return all;
}

std::vector<Tensor> probe_backward(Tape& tape, const Var& y, const Tensor& dy,
                                   const std::vector<const Var*>& inputs) {
  tape.backward(y, dy);
  std::vector<Tensor> results{y.value};
  for (const Var* input : inputs) results.push_back(input->slot->take());
  return as_float(results);
}

}  // namespace temper::ops
