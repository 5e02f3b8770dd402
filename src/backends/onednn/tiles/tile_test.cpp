#include "backends/onednn/tiles/tile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "backends/onednn/tiles/packed_tile.h"
#include "backends/test_support.h"

namespace temper::backends {
namespace {

struct Sizes {
  int64_t m, n, k;
};

double element(const Tensor& tensor, int64_t row, int64_t column) {
  const int64_t at = row * tensor.stride(0) + column;
  return tensor.dtype() == DType::kF32 ? tensor.data<float>()[at]
                                       : static_cast<float>(tensor.data<BFloat16>()[at]);
}

using Multiply = std::function<void(const Tile&)>;

// Every form of both operands, compared with sums in double precision; memory next to c stays unchanged.
void check(const Multiply& multiply, const Sizes& sizes, DType a_dtype, DType b_dtype) {
  const auto [m, n, k] = sizes;
  constexpr int64_t kBeside = 3;
  for (const bool a_transposed : {false, true})
    for (const bool b_transposed : {false, true})
      for (const bool accumulate : {false, true}) {
        SCOPED_TRACE(fmt::format("[{}, {}, {}] {}{} {}{} {}", m, n, k, to_string(a_dtype),
                                 a_transposed ? "ᵀ" : "", to_string(b_dtype), b_transposed ? "ᵀ" : "",
                                 accumulate ? "accumulates" : ""));
        // Wider than what is used: rows have strides of their own, odd ones, too.
        const Tensor a = random_tensor(a_transposed ? Shape{k, m + 5} : Shape{m, k + 5}, a_dtype, 1);
        const Tensor b = random_tensor(b_transposed ? Shape{n, k + 1} : Shape{k, n + 2}, b_dtype, 2);
        const Tensor c = random_tensor({m, n + kBeside}, DType::kF32, 3);
        const Tensor before = c.clone();
        Matrix left = rows_of(a), right = rows_of(b);
        left.transposed = a_transposed;
        right.transposed = b_transposed;
        multiply({left, right, m, n, k, c.data<float>(), n + kBeside, accumulate});
        for (int64_t i = 0; i < m; ++i) {
          for (int64_t j = 0; j < n; ++j) {
            double sum = accumulate ? element(before, i, j) : 0, size = std::abs(sum);
            for (int64_t t = 0; t < k; ++t) {
              const double term = (a_transposed ? element(a, t, i) : element(a, i, t)) *
                                  (b_transposed ? element(b, j, t) : element(b, t, j));
              sum += term;
              size += std::abs(term);
            }
            ASSERT_LT(std::abs(element(c, i, j) - sum) / size, 1e-6) << i << ", " << j;
          }
          for (int64_t j = n; j < n + kBeside; ++j) ASSERT_EQ(element(c, i, j), element(before, i, j));
        }
      }
}

constexpr Sizes kSizes[] = {{1, 1, 1},    {6, 64, 256},  {7, 65, 3},   {5, 15, 31},   {13, 130, 257},
                            {2, 33, 513}, {12, 48, 512}, {61, 17, 64}, {6, 200, 515}, {3, 1, 1025}};

TEST(Tile, ByOneDnn) {
  for (const Sizes& sizes : kSizes) {
    for (const DType a : {DType::kF32, DType::kBF16})
      for (const DType b : {DType::kF32, DType::kBF16})
        check([](const Tile& tile) { multiply_by_onednn(tile, Bf16Path::kWiden); }, sizes, a, b);
    if (bf16_path() == Bf16Path::kNative)
      check([](const Tile& tile) { multiply_by_onednn(tile, Bf16Path::kNative); }, sizes, DType::kBF16,
            DType::kBF16);
  }
}

// Stated and taken, with copies of what is no multiple of what is compiled and without.
TEST(Tile, WorkspaceByOneDnn) {
  const auto check_peak = [](const Sizes& sizes, DType dtype, Bf16Path path, bool transposed,
                             bool accumulate) {
    const auto [m, n, k] = sizes;
    const Tensor a = random_tensor(transposed ? Shape{k, m} : Shape{m, k}, dtype, 1),
                 b = random_tensor(transposed ? Shape{n, k} : Shape{k, n}, dtype, 2),
                 c = random_tensor({m, n}, DType::kF32, 3);
    Tile tile{rows_of(a), rows_of(b), m, n, k, c.data<float>(), n, accumulate};
    tile.a.transposed = tile.b.transposed = transposed;
    Pool& memory = pool({});
    const auto used = [&] { return memory.usage()[static_cast<size_t>(MemoryTag::kWorkspace)]; };
    const int64_t before = used().live;
    memory.reset_peak();
    multiply_by_onednn(tile, path);
    const int64_t taken = used().peak - before;
    tile.a.data = tile.b.data = tile.c = nullptr;
    const int64_t stated = workspace_by_onednn(tile, path);
    constexpr int64_t kRounding = 4 << 10;  // of what the pool gives
    EXPECT_LE(std::abs(taken - stated), kRounding)
        << fmt::format("[{}, {}, {}]{}{}: {} stated, {} taken", m, n, k, transposed ? " transposed" : "",
                       accumulate ? " accumulates" : "", stated, taken);
  };
  for (const Sizes& sizes : {Sizes{256, 256, 1024},
                             {512, 512, 2048},
                             {96, 128, 2500},
                             {250, 200, 1000},
                             {1, 512, 3000},
                             {500, 130, 1030},
                             {128, 128, 4096}})
    for (const bool transposed : {false, true})
      for (const bool accumulate : {false, true}) {
        check_peak(sizes, DType::kBF16, Bf16Path::kWiden, transposed, accumulate);
        if (bf16_path() == Bf16Path::kNative)
          check_peak(sizes, DType::kBF16, Bf16Path::kNative, transposed, accumulate);
      }
}

// What multiply() takes: AVX-512 or AVX2, whichever this processor offers (make isa runs both).
TEST(Tile, ByVectorsOfOurOwn) {
  if (!has_packed_tile(DType::kF32)) GTEST_SKIP() << "neither AVX-512 nor AVX2 on this processor";
  for (const Sizes& sizes : kSizes) {
    for (const DType a : {DType::kF32, DType::kBF16})
      for (const DType b : {DType::kF32, DType::kBF16})
        check([](const Tile& tile) { packed_tile(tile, DType::kF32); }, sizes, a, b);
    if (has_packed_tile(DType::kBF16))
      check([](const Tile& tile) { packed_tile(tile, DType::kBF16); }, sizes, DType::kBF16, DType::kBF16);
  }
}

// Calls of the library cost more than little tiles do, and threads wait for each other in them.
TEST(Tile, LittleOnesAreNotLeftToTheLibrary) {
  if (!has_packed_tile(DType::kF32)) GTEST_SKIP() << "neither AVX-512 nor AVX2 on this processor";
  const auto product = [](const Sizes& sizes, const Multiply& multiply) {
    const auto [m, n, k] = sizes;
    const Tensor a = random_tensor({m, k}, DType::kBF16, 1), b = random_tensor({n, k}, DType::kBF16, 2);
    Tensor c = Tensor::empty({m, n}, DType::kF32);
    multiply({rows_of(a), transpose_of(b), m, n, k, c.data<float>(), n});
    return c;
  };
  const auto by_default = [](const Tile& tile) { multiply(tile); };
  const bool pairs = bf16_path() == Bf16Path::kNative && has_packed_tile(DType::kBF16);
  const DType own = pairs ? DType::kBF16 : DType::kF32;
  const Sizes little{23, 23, 128}, large{256, 256, 128};
  const auto by_vectors = [own](const Tile& tile) { packed_tile(tile, own); };
  EXPECT_TRUE(std::ranges::equal(product(little, by_default).values<float>(),
                                 product(little, by_vectors).values<float>()));
  if (bf16_path() == Bf16Path::kNative && !pairs) {
    const auto by_library = [](const Tile& tile) { multiply_by_onednn(tile); };
    EXPECT_TRUE(std::ranges::equal(product(large, by_default).values<float>(),
                                   product(large, by_library).values<float>()));
  }
}

// Columns that are packed once give what a tile that packs its own gives, bit by bit.
TEST(Tile, ColumnsPackedAhead) {
  if (!has_packed_tile(DType::kF32)) GTEST_SKIP() << "neither AVX-512 nor AVX2 on this processor";
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    if (!has_packed_tile(dtype)) continue;
    const int64_t m = 20, n = 150, k = 1100, first = PackedColumns::kAlign;
    const Tensor a = random_tensor({m, k}, dtype, 1), b = random_tensor({n, k}, dtype, 2);
    const Tensor c = Tensor::empty({m, n}, DType::kF32), ahead = Tensor::empty({m, n - first}, DType::kF32);
    packed_tile({rows_of(a), transpose_of(b), m, n, k, c.data<float>(), n}, dtype);
    PackedColumns columns(dtype, k, n);
    for (int64_t piece = 0; piece < columns.pieces(); ++piece) columns.pack(transpose_of(b), piece);
    columns.multiply({rows_of(a), {}, m, n - first, k, ahead.data<float>(), n - first}, first);
    EXPECT_TRUE(std::ranges::equal(c.narrow(1, first, n - first).contiguous().values<float>(),
                                   ahead.values<float>()));
  }
}

// A row's bits are the same in a tile of any number of rows, by whatever loops: few rows read b where it
// lies.
TEST(Tile, RowsAreAddedUpAlikeInAnyNumber) {
  if (!has_packed_tile(DType::kF32)) GTEST_SKIP() << "neither AVX-512 nor AVX2 on this processor";
  struct Dtypes {
    DType a, b, products;
  };
  constexpr int64_t kMany = 1024;
  for (const auto& [a_dtype, b_dtype, products] :
       {Dtypes{DType::kF32, DType::kF32, DType::kF32}, Dtypes{DType::kF32, DType::kBF16, DType::kF32},
        Dtypes{DType::kBF16, DType::kBF16, DType::kF32}, Dtypes{DType::kBF16, DType::kBF16, DType::kBF16}}) {
    if (!has_packed_tile(products)) continue;
    for (const auto& [n, k] : {std::pair<int64_t, int64_t>{1, 1}, {16, 16}, {37, 131}, {96, 512}, {33, 1061}})
      for (const bool accumulate : {false, true}) {
        const Tensor a = random_tensor({kMany, k + 3}, a_dtype, 1), b = random_tensor({n, k + 5}, b_dtype, 2);
        const Tensor before = random_tensor({kMany, n}, DType::kF32, 3), expected = before.clone();
        packed_tile({rows_of(a), transpose_of(b), kMany, n, k, expected.data<float>(), n, accumulate},
                    products);
        for (int64_t m = 1, first = 5; m <= 64; ++m, first += 7) {
          const Tensor c = before.narrow(0, first, m).contiguous().clone();
          packed_tile({rows_of(a).block(first, 0), transpose_of(b), m, n, k, c.data<float>(), n, accumulate},
                      products);
          ASSERT_TRUE(same_bits(c, expected.narrow(0, first, m).contiguous()))
              << fmt::format("{} of {} by {}, {} rows, {} x {}{}", to_string(a_dtype), to_string(b_dtype),
                             to_string(products), m, n, k, accumulate ? ", accumulates" : "");
        }
      }
  }
}

// Memory behind a row or a column is not read, memory next to c stays unchanged, and each row has the bits
// that it has alone.
TEST(Tile, ShortDots) {
  if (!has_packed_tile(DType::kF32)) GTEST_SKIP() << "neither AVX-512 nor AVX2 on this processor";
  const auto with_nan_behind = [](int64_t rows, int64_t k, uint64_t seed) {
    const Tensor all = random_tensor({rows, k + 3}, DType::kF32, seed);
    for (int64_t row = 0; row < rows; ++row) std::fill_n(all.data<float>() + row * (k + 3) + k, 3, NAN);
    return all;
  };
  for (const int64_t m : {1, 2, 3, 4, 7, 16})
    for (const int64_t n : {1, 5, 8, 16, 17, 64})
      for (const int64_t k : {1, 8, 15, 16, 17, 32, 100, 128}) {
        SCOPED_TRACE(fmt::format("[{}, {}, {}]", m, n, k));
        const Tensor a = with_nan_behind(m, k, 1), b = with_nan_behind(n, k, 2);
        Matrix columns = rows_of(b);
        columns.transposed = true;
        const Tensor c = Tensor::zeros({m, n + 3}, DType::kF32), one = Tensor::zeros({1, n}, DType::kF32);
        std::fill_n(c.data<float>(), c.numel(), NAN);
        short_dots({rows_of(a), columns, m, n, k, c.data<float>(), n + 3, false});
        for (int64_t i = 0; i < m; ++i) {
          short_dots({rows_of(a).block(i, 0), columns, 1, n, k, one.data<float>(), n, false});
          for (int64_t j = 0; j < n; ++j) {
            double sum = 0, size = 0;
            for (int64_t t = 0; t < k; ++t) {
              sum += element(a, i, t) * element(b, j, t);
              size += std::abs(element(a, i, t) * element(b, j, t));
            }
            ASSERT_LT(std::abs(element(c, i, j) - sum) / size, 1e-6) << i << ", " << j;
            ASSERT_EQ(element(c, i, j), element(one, 0, j)) << i << ", " << j;
          }
          for (int64_t j = n; j < n + 3; ++j) ASSERT_TRUE(std::isnan(element(c, i, j)));
        }
      }
}

}  // namespace
}  // namespace temper::backends
