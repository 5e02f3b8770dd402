// Products with updates compared with sums in double precision, on a GPU; skipped where there is none.
#include "backends/hopper/updated_product.h"

#include <cmath>
#include <functional>
#include <utility>

#include "backends/gpu/swiglu_rows.h"
#include "backends/test_support.h"
#include "device/facts.h"
#include "ops/lora_linear/lora_linear.h"
#include "tests/support/gpu.h"

namespace temper::backends {
namespace {

struct TestUpdate {
  int64_t row, rows, column, columns, rank;
};
struct TestProduct {
  int64_t rows, columns, depth;
  bool transpose_b;
  bool bias;
  std::vector<TestUpdate> updates;
};

// A matrix on the CPU in double precision, and on the GPU.
struct Matrix {
  Tensor here, there;
  double at(int64_t row, int64_t column) const {
    return static_cast<double>(here.data<float>()[row * here.dim(1) + column]);
  }
};

Matrix random_matrix(int64_t rows, int64_t columns, uint32_t seed, float spread = 1) {
  const Tensor values = random_tensor({rows, columns}, DType::kBF16, seed, spread);
  return {values.to(DType::kF32), values.on({DeviceType::kCuda, 0})};
}

class UpdatedProductOnGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  }

  // Swiglu of the product where b is transposed, otherwise its backward: the bits of the two one after the
  // other, and nothing written but that.
  static void check_with_swiglu(const std::string& name, const TestProduct& n, int64_t taken) {
    const Given given(n);
    const bool forward = n.transpose_b;
    const int64_t width = forward ? n.columns / 2 : 2 * n.columns;
    const Matrix gate_up = random_matrix(n.rows, width, 5, 3);
    const auto multiply = [&](const UpdatedProduct& p, double least_filled) {
      const int64_t rows = multiply_and_update_on_hopper(p, least_filled);
      if (least_filled == 0) {
        EXPECT_EQ(rows, taken) << name;
      }
    };
    for (const double least_filled : {0.0, 0.75}) {
      UpdatedProduct apart = given.product(not_a_number(n.rows, n.columns)), joined = apart;
      multiply(apart, least_filled);
      const Tensor y = not_a_number(n.rows, forward ? width : n.columns);
      joined.d = not_a_number(n.rows, forward ? n.columns : width);
      joined.y = not_a_number(n.rows, y.dim(1));
      if (forward) {
        write_swiglu(apart.d, y);
      } else {
        const Tensor product = std::exchange(apart.d, not_a_number(n.rows, width));
        write_swiglu_backward(gate_up.there, product, apart.d, y);
        joined.gate_up = gate_up.there;
      }
      multiply(joined, least_filled);
      EXPECT_TRUE(same_bits(joined.d.on({}), apart.d.on({}))) << name << ", " << least_filled;
      EXPECT_TRUE(same_bits(joined.y.on({}), y.on({}))) << name << ", y, " << least_filled;
      if (forward) continue;
      joined.y = {};
      joined.d = not_a_number(n.rows, width);
      multiply(joined, least_filled);
      EXPECT_TRUE(same_bits(joined.d.on({}), apart.d.on({}))) << name << ", without y, " << least_filled;
    }
  }

  // Both ways; `taken`: how many rows the kernel computes where it need not fill the GPU.
  void check(const std::string& name, const TestProduct& n, int64_t taken) const {
    check(name + ", cublaslt", n, multiply_and_update);
    if (detect_hardware("cuda").compute_capability != 90) return;
    check(name + ", hopper", n,
          [&](const UpdatedProduct& p) { EXPECT_EQ(multiply_and_update_on_hopper(p, 0), taken) << name; });
    check(name + ", what suits", n, [](const UpdatedProduct& p) { multiply_and_update_on_hopper(p); });
  }

 private:
  static Tensor not_a_number(int64_t rows, int64_t columns) {
    const std::vector<float> values(static_cast<size_t>(rows * columns), std::nanf(""));
    return Tensor::from(values).reshape({rows, columns}).to(DType::kBF16).on({DeviceType::kCuda, 0});
  }
  static Matrix matrix_b(bool transpose, int64_t depth, int64_t columns, uint32_t seed) {
    return transpose ? random_matrix(columns, depth, seed) : random_matrix(depth, columns, seed);
  }
  // Σ a b over one row and column, and the sum of its terms' sizes.
  static std::pair<double, double> sum(const Matrix& a, const Matrix& b, bool transpose, int64_t row,
                                       int64_t column) {
    double sum = 0, size = 0;
    for (int64_t k = 0; k < a.here.dim(1); ++k) {
      const double term = a.at(row, k) * (transpose ? b.at(column, k) : b.at(k, column));
      sum += term;
      size += std::abs(term);
    }
    return {sum, size};
  }

  // The operands of a product.
  struct Given {
    explicit Given(const TestProduct& n)
        : transpose_b(n.transpose_b),
          a(random_matrix(n.rows, n.depth, 1)),
          b(matrix_b(n.transpose_b, n.depth, n.columns, 2)),
          bias(n.bias ? random_matrix(1, n.columns, 3, 20) : Matrix{}),
          places(n.updates) {
      for (const TestUpdate& update : n.updates) {
        const auto seed = static_cast<uint32_t>(10 + updates.size());
        updates.emplace_back(random_matrix(update.rows, update.rank, seed, 3),
                             matrix_b(n.transpose_b, update.rank, update.columns, seed + 100));
      }
    }
    UpdatedProduct product(const Tensor& d) const {
      UpdatedProduct product{a.there, b.there, d, transpose_b, {}, {}};
      if (bias.there.defined()) product.bias = bias.there.reshape({bias.there.dim(1)});
      for (size_t u = 0; u < updates.size(); ++u)
        product.updates.push_back(
            {places[u].row, places[u].column, updates[u].first.there, updates[u].second.there});
      return product;
    }

    bool transpose_b;
    Matrix a, b, bias;
    std::vector<TestUpdate> places;
    std::vector<std::pair<Matrix, Matrix>> updates;
  };

  static void check(const std::string& name, const TestProduct& n,
                    const std::function<void(const UpdatedProduct&)>& multiply) {
    const Given given(n);
    const auto& [transpose, a, b, bias, places, updates] = given;
    const UpdatedProduct product = given.product(not_a_number(n.rows, n.columns));
    multiply(product);
    const Matrix d{product.d.on({}).to(DType::kF32), {}};

    std::mt19937 engine(7);
    int64_t wrong = 0;
    for (int64_t sample = 0; sample < 4000; ++sample) {
      // The last rows and columns, and any.
      const int64_t row =
                        sample < 200 ? n.rows - 1 - sample % std::min<int64_t>(n.rows, 3) : engine() % n.rows,
                    column = sample < 200 ? n.columns - 1 - sample % n.columns : engine() % n.columns;
      auto [expected, size] = sum(a, b, transpose, row, column);
      double rounded = std::abs(expected);  // what cuBLASLt's way rounds on its way
      if (n.bias) {
        expected += bias.at(0, column);
        rounded += std::abs(bias.at(0, column));
      }
      for (size_t u = 0; u < updates.size(); ++u) {
        const TestUpdate& update = places[u];
        if (row < update.row || row >= update.row + update.rows || column < update.column ||
            column >= update.column + update.columns)
          continue;
        const auto [added, its_size] =
            sum(updates[u].first, updates[u].second, transpose, row - update.row, column - update.column);
        expected += added;
        size += its_size;
        rounded += std::abs(added);
      }
      const double allowed = (rounded + std::abs(expected)) / 256 + size * 1e-6;
      if (std::abs(d.at(row, column) - expected) <= allowed) continue;
      if (++wrong == 1)
        ADD_FAILURE() << name << ": at (" << row << ", " << column << ") " << d.at(row, column)
                      << ", expected " << expected;
    }
    EXPECT_EQ(wrong, 0) << name;
  }
};

// Sizes that fill the GPU with whole tiles, nearly: their last ones are cut.
TEST_F(UpdatedProductOnGpu, AgreesWithSumsInDoublePrecision) {
  for (const bool transpose : {true, false}) {
    for (const int64_t rank : {8, 16, 48, 64, 72, 200})
      check("one", {2000, 2040, 200, transpose, false, {{0, 2000, 0, 2040, rank}}}, 2000);
    check("all of whole tiles", {2048, 2048, 256, transpose, true, {{0, 2048, 0, 2048, 32}}}, 2048);
    const TestUpdate q{0, 2000, 0, 1000, 8}, k{0, 2000, 1000, 552, 72}, v{0, 2000, 1552, 488, 24};
    check("q|k|v", {2000, 2040, 136, transpose, true, {q, k, v}}, 2000);
    check("q and v", {2000, 2040, 64, transpose, true, {q, v}}, 2000);
    check("deep", {2048, 2048, 3072, transpose, false, {{0, 2048, 0, 2048, 16}}}, 2048);
    check("many rounds of tiles", {5000, 6136, 72, transpose, false, {{0, 5000, 0, 6136, 24}}}, 5000);
    // More tiles than a GPU has clusters, and deep enough to hide stores of the tile before.
    for (const int64_t depth : {256, 328})
      check("deep rounds of tiles", {2000, 4080, depth, transpose, true, {{0, 2000, 0, 4080, 72}}}, 2000);
    check("small", {3, 8, 8, transpose, true, {{0, 3, 0, 8, 8}}}, 3);
    check("a second block without rows", {100, 264, 8, transpose, false, {{0, 100, 0, 264, 16}}}, 100);
  }
}

TEST_F(UpdatedProductOnGpu, RunsOfRowsHaveTheirOwnUpdates) {
  for (const bool transpose : {true, false}) {
    check(
        "two, rows of none, and few",
        {4300,
         2040,
         72,
         transpose,
         true,
         {{2100, 2040, 0, 2040, 16}, {0, 2000, 0, 1000, 8}, {0, 2000, 1000, 1040, 24}, {4200, 90, 8, 64, 8}}},
        2000 + 2040 + 90);
    check("few", {300, 264, 72, transpose, true, {{0, 100, 0, 264, 16}, {150, 150, 8, 64, 40}}}, 250);
  }
}

TEST_F(UpdatedProductOnGpu, SwigluGoesAlong) {
  if (detect_hardware("cuda").compute_capability != 90) GTEST_SKIP() << "the kernel is for 9.0";
  const auto up_and_down = [](const std::string& name, TestProduct n, int64_t taken) {
    for (const bool transpose : {true, false}) {
      n.transpose_b = transpose;
      n.bias = n.bias && transpose;
      check_with_swiglu(name, n, taken);
    }
  };
  for (const int64_t rank : {8, 64, 88})
    up_and_down("one", {2000, 2032, 200, true, true, {{0, 2000, 0, 2032, rank}}}, 2000);
  up_and_down("whole tiles", {2048, 2048, 256, true, false, {{0, 2048, 0, 2048, 16}}}, 2048);
  const TestUpdate gate{0, 2000, 0, 1016, 16}, up{0, 2000, 1016, 1016, 72};
  up_and_down("gate and up", {2000, 2032, 136, true, true, {gate, up}}, 2000);
  up_and_down("up alone", {2000, 2032, 136, true, false, {up}}, 2000);
  up_and_down("many rounds of tiles", {5000, 6128, 72, true, false, {{0, 5000, 0, 6128, 24}}}, 5000);
  for (const int64_t depth : {256, 328})  // as above
    up_and_down("deep rounds of tiles", {2000, 4080, depth, true, true, {{0, 2000, 0, 4080, 88}}}, 2000);
  up_and_down("small", {3, 16, 8, true, true, {{0, 3, 0, 16, 8}}}, 3);
  up_and_down("a second block without rows", {100, 272, 8, true, false, {{0, 100, 0, 272, 16}}}, 100);
  up_and_down("two, and rows of none",
              {4300, 2032, 72, true, true, {{2100, 2040, 0, 2032, 16}, {0, 2000, 0, 1016, 8}}}, 4040);
  up_and_down("an odd rank", {300, 272, 72, true, false, {{0, 300, 0, 272, 3}}}, 0);
}

TEST_F(UpdatedProductOnGpu, WhatTheKernelIsNotForGoesElsewhere) {
  for (const bool transpose : {true, false}) {
    check("an odd rank", {2000, 2040, 72, transpose, false, {{0, 2000, 0, 2040, 3}}}, 0);
    check("an odd first column", {300, 264, 72, transpose, false, {{0, 300, 12, 240, 8}}}, 0);
    check("odd columns", {300, 260, 72, transpose, false, {{0, 300, 0, 260, 8}}}, 0);
    check("an odd depth", {300, 264, 71, transpose, false, {{0, 300, 0, 264, 8}}}, 0);
    check("none at all", {300, 264, 72, transpose, true, {}}, 0);
    std::vector<TestUpdate> many;
    for (int64_t i = 0; i < 5; ++i) many.push_back({0, 300, 48 * i, 48, 8});
    check("many", {300, 264, 72, transpose, false, many}, 0);
  }
}

TEST(HopperLoraLinear, Refuses) {
  const auto refusal = [](const ops::LoraLinear::Signature& signature, int capability) {
    HardwareFacts facts;  // of a GPU that is not here
    facts.hardware = hardware::kGpu;
    facts.compute_capability = capability;
    return ops::kernels<ops::LoraLinear>().find("hopper")->accepts(signature, facts).value_or("");
  };
  const ops::LoraLinear::Signature fits{DType::kBF16, 64, 96, true};
  EXPECT_EQ(refusal(fits, 90), "");
  EXPECT_EQ(refusal(fits, 100), "is for bfloat16 at compute capability 9.0, this is bfloat16 at 10.0");
  EXPECT_EQ(refusal({DType::kF32, 64, 96, true}, 90),
            "is for bfloat16 at compute capability 9.0, this is float32 at 9.0");
  EXPECT_EQ(refusal({DType::kBF16, 60, 96, true}, 90),
            "is for sizes that are multiples of 8, this is 60 to 96");
}

}  // namespace
}  // namespace temper::backends
