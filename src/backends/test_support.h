#pragma once
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "base/threads/threads.h"
#include "ops/selection.h"
#include "tests/support/relative_error.h"

// What the rooms' tests share: a kernel against `eager`, and against itself with other numbers of threads.
namespace temper::backends {

inline Tensor random_tensor(Shape shape, DType dtype, uint32_t seed, float spread = 1) {
  const Tensor wide = Tensor::empty(shape, DType::kF32);
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0, spread);
  for (float& value : wide.values<float>()) value = normal(engine);
  return wide.to(dtype);
}

// Columns [0, width) of a wider random tensor, so that its rows have gaps.
inline Tensor random_strided(Shape shape, DType dtype, uint32_t seed) {
  Shape wider = shape;
  wider[0] = shape[0] * 2 + 1;
  const Tensor all = random_tensor(wider, dtype, seed);
  return all.narrow(0, 0, shape[0] * 2).reshape({shape[0], 2 * shape[1], shape[2]}).narrow(1, 0, shape[1]);
}

inline Tensor random_ids(int64_t count, int64_t limit, uint32_t seed) {
  std::vector<int32_t> ids(static_cast<size_t>(count));
  std::mt19937 engine(seed);
  for (int32_t& id : ids) id = static_cast<int32_t>(engine() % static_cast<uint32_t>(limit));
  return Tensor::from(ids);
}

template <class Op>
ops::BoundOps bind(std::string provider, typename Op::Signature signature) {
  HardwareFacts facts;
  ops::Binder binder({.fallback = std::move(provider)}, facts);
  binder.bind<Op>({signature});
  return binder.finish();
}

inline bool same_bits(const Tensor& a, const Tensor& b) {
  if (a.defined() != b.defined()) return false;
  if (!a.defined()) return true;
  return a.shape() == b.shape() && a.dtype() == b.dtype() &&
         std::memcmp(a.contiguous().raw(), b.contiguous().raw(), static_cast<size_t>(a.bytes())) == 0;
}

// Relative to the largest magnitude in `expected`, or to 1: inputs are about 1, and what is 0 in exact
// arithmetic is rounding errors here.
inline double difference(const Tensor& found, const Tensor& expected) {
  EXPECT_EQ(found.shape(), expected.shape());
  return relative_error(found, expected, 1);
}

inline double tolerance(DType dtype) { return dtype == DType::kF32 ? 2e-5 : 2e-2; }

// `run` names a provider's results; the provider must agree with eager, and with itself for any number of
// threads.
using Results = std::vector<Tensor>;
inline void expect_faithful(const std::string& provider, DType dtype,
                            const std::function<Results(const std::string& provider)>& run) {
  const int threads = num_threads();
  const Results expected = run("eager");
  set_num_threads(1);
  const Results alone = run(provider);
  ASSERT_EQ(alone.size(), expected.size());
  for (size_t i = 0; i < alone.size(); ++i)
    EXPECT_LT(difference(alone[i], expected[i]), tolerance(dtype))
        << "result " << i << ", " << to_string(dtype);
  for (const int count : {2, 3, 7}) {
    set_num_threads(count);
    const Results found = run(provider);
    for (size_t i = 0; i < found.size(); ++i)
      EXPECT_TRUE(same_bits(found[i], alone[i])) << "result " << i << " with " << count << " threads";
  }
  set_num_threads(threads);
}

}  // namespace temper::backends
