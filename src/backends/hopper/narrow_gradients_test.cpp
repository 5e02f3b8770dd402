// An adapter's narrow gradients compared with sums in double precision, on a GPU; skipped where there is
// none.
#include "backends/hopper/narrow_gradients.h"

#include <cmath>
#include <functional>

#include "backends/test_support.h"
#include "device/facts.h"
#include "tests/support/gpu.h"

namespace temper::backends {
namespace {

constexpr Device kGpu{DeviceType::kCuda, 0};

struct TestSlice {
  int64_t column, columns, rank;
  float scale = 1;
};
struct TestCase {
  int64_t rows, columns;
  std::vector<TestSlice> slices;
  DType gradients = DType::kF32;
  bool accumulate = false;
};

// What a GPU has of a matrix, on the CPU in float32.
Tensor wide(const Tensor& there) { return there.on({}).to(DType::kF32); }
double at(const Tensor& matrix, int64_t row, int64_t column) {
  return static_cast<double>(matrix.data<float>()[row * matrix.dim(1) + column]);
}

// Counts what is further from its sum than its terms' rounding allows.
class Comparison {
 public:
  explicit Comparison(std::string name) : name_(std::move(name)) {}
  ~Comparison() { EXPECT_EQ(wrong_, 0) << name_; }
  // `rounded`: sizes of what is rounded on the way.
  void add(double found, double expected, double size_of_terms, double rounded) {
    if (std::abs(found - expected) <= rounded + size_of_terms * 1e-6) return;
    if (++wrong_ == 1) ADD_FAILURE() << name_ << ": " << found << ", expected " << expected;
  }

 private:
  std::string name_;
  int64_t wrong_ = 0;
};

constexpr double rounding_of(DType dtype) { return dtype == DType::kF32 ? 1e-6 : 1.0 / 256; }

void check_slice(const std::string& name, const NarrowGradients::Slice& slice, const TestSlice& its,
                 const Tensor& dy, double before) {
  const Tensor b = wide(slice.b), low = wide(slice.low), dlow = wide(slice.dlow);
  const Tensor db = wide(slice.db.buffer);
  std::mt19937 engine(3);
  Comparison of_low(name + ", dlow"), of_b(name + ", db");
  for (int64_t sample = 0; sample < 500; ++sample) {
    const int64_t rank = engine() % its.rank,
                  row = sample < 100 ? dy.dim(0) - 1 - sample % dy.dim(0) : engine() % dy.dim(0),
                  column = sample < 100 ? its.columns - 1 - sample % its.columns : engine() % its.columns;
    double sum = 0, size = 0;
    for (int64_t c = 0; c < its.columns; ++c) {
      const double term = at(dy, row, its.column + c) * at(b, c, rank);
      sum += term;
      size += std::abs(term);
    }
    const auto scale = static_cast<double>(its.scale);
    of_low.add(at(dlow, row, rank), scale * sum, scale * size,
               std::abs(scale * sum) * rounding_of(DType::kBF16));
    sum = 0;
    size = std::abs(before);
    for (int64_t r = 0; r < dy.dim(0); ++r) {
      const double term = at(dy, r, its.column + column) * at(low, r, rank);
      sum += term;
      size += std::abs(term);
    }
    of_b.add(at(db, column, rank), before + sum, size,
             (std::abs(before) + std::abs(sum)) * rounding_of(slice.db.buffer.dtype()));
  }
}

using Kernel = std::function<void(const NarrowGradients&)>;

void check_kernel(const std::string& name, const TestCase& n, const Kernel& kernel) {
  const float before = n.accumulate ? 5 : std::nanf("");
  int64_t ranks = 0;
  for (const TestSlice& slice : n.slices) ranks += slice.rank;
  const Tensor dy = random_tensor({n.rows, n.columns}, DType::kBF16, 1),
               low = random_tensor({n.rows, ranks}, DType::kBF16, 2).on(kGpu), dlow = low.clone();
  NarrowGradients op{dy.on(kGpu), {}};
  int64_t first = 0;
  for (const TestSlice& slice : n.slices) {
    const Shape shape{slice.columns, slice.rank};
    const std::vector<float> values(static_cast<size_t>(shape.numel()), before);
    const Tensor b = random_tensor(shape, DType::kBF16, static_cast<uint32_t>(10 + first)).on(kGpu),
                 db = Tensor::from(values).reshape(shape).to(n.gradients).on(kGpu);
    op.slices.push_back({slice.column,
                         b,
                         low.narrow(1, first, slice.rank),
                         dlow.narrow(1, first, slice.rank),
                         {db, n.accumulate},
                         slice.scale});
    first += slice.rank;
  }
  kernel(op);
  for (size_t s = 0; s < n.slices.size(); ++s)
    check_slice(name + ", slice " + std::to_string(s), op.slices[s], n.slices[s], dy.to(DType::kF32),
                n.accumulate ? 5 : 0);
}

// `taken`: whether the kernel of our own is for it, however few rows there are.
void check(const std::string& name, const TestCase& n, bool taken = true) {
  if (const std::string why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  // cuBLASLt may round sums over parts of the rows to the gradients' dtype.
  if (n.gradients == DType::kF32) check_kernel(name + ", cublaslt", n, narrow_gradients);
  if (detect_hardware("cuda").compute_capability == 90)
    check_kernel(name + ", hopper", n, [&](const NarrowGradients& op) {
      EXPECT_EQ(narrow_gradients_on_hopper(op, 1), taken) << name;
    });
}

TEST(NarrowGradientsOnGpu, AgreeWithSumsInDoublePrecision) {
  for (const int64_t rank : {8, 16, 24, 32}) {
    check("one", {1100, 304, {{0, 300, rank, 2}}});
    check("one, wide", {1030, 5000, {{0, 5000, rank, 0.3f}}});
    check("tall", {9000, 264, {{0, 264, rank}}});
  }
  check("gate|up", {4096, 6144, {{0, 3072, 16, 2}, {3072, 3072, 16, 2}}});
}

TEST(NarrowGradientsOnGpu, SlicesHaveTheirOwnRanksAndScales) {
  const std::vector<TestSlice> slices{{0, 1000, 8, 2}, {1000, 520, 32, 0.5f}, {1600, 440, 16, 1}};
  check("q|k|v", {2000, 2040, slices});
  check("bfloat16 gradients", {2000, 2040, slices, DType::kBF16});
  check("more gradients", {2000, 2040, slices, DType::kF32, true});
  check("more gradients in bfloat16", {2000, 2040, slices, DType::kBF16, true});
}

TEST(NarrowGradientsOnGpu, FewRows) {
  check("few rows", {100, 264, {{0, 264, 16}}});
  check("one", {1, 8, {{0, 8, 8}}});
  check("next to others", {130, 264, {{8, 100, 16}, {112, 20, 32}}});
}

TEST(NarrowGradientsOnGpu, WhatTheKernelIsNotForGoesElsewhere) {
  check("an odd rank", {1100, 264, {{0, 264, 3}}}, false);
  check("an odd column", {1100, 264, {{8, 100, 16}, {108, 20, 32}}}, false);
  check("odd rows of dy", {1100, 300, {{0, 300, 16}}}, false);
  check("a large rank", {1100, 264, {{0, 264, 40}}}, false);
  check("many", {1100, 264, {{0, 8, 8}, {8, 8, 8}, {16, 8, 8}, {24, 8, 8}, {32, 8, 8}}}, false);
}

// Two slices of one gradient add to it one after the other.
TEST(NarrowGradientsOnGpu, SlicesMayShareAGradient) {
  if (const std::string why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  if (detect_hardware("cuda").compute_capability != 90) GTEST_SKIP() << "for compute capability 9.0";
  const auto on_gpu = [](Shape shape, uint32_t seed) {
    return random_tensor(shape, DType::kBF16, seed).on(kGpu);
  };
  const Tensor dy = on_gpu({1100, 64}, 1), b = on_gpu({32, 8}, 2), low = on_gpu({1100, 16}, 3),
               dlow = low.clone(), db = Tensor::empty({32, 8}, DType::kF32).on(kGpu);
  const auto slice = [&](int64_t i) {
    return NarrowGradients::Slice{32 * i,      b, low.narrow(1, 8 * i, 8), dlow.narrow(1, 8 * i, 8),
                                  {db, i > 0}, 1};
  };
  EXPECT_FALSE(narrow_gradients_on_hopper({dy, {slice(0), slice(1)}}));
  const Tensor expected = Tensor::empty({32, 8}, DType::kF32).on(kGpu);
  for (int64_t i = 0; i < 2; ++i) {
    NarrowGradients::Slice alone = slice(i);
    alone.db.buffer = expected;
    EXPECT_TRUE(narrow_gradients_on_hopper({dy, {alone}}));
  }
  const Tensor found = db.on({}), sum = expected.on({});
  for (int64_t i = 0; i < found.numel(); ++i)
    EXPECT_NEAR(found.data<float>()[i], sum.data<float>()[i], 1e-3) << i;
}

}  // namespace
}  // namespace temper::backends
