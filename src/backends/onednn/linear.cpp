#include <algorithm>

#include "backends/cpu/float32_sums.h"
#include "backends/floats.h"
#include "backends/onednn/onednn.h"
#include "backends/onednn/product.h"
#include "backends/onednn/tiles/blocks.h"
#include "backends/onednn/tiles/packed_tile.h"
#include "base/threads/threads.h"
#include "ops/linear/linear.h"

namespace temper::backends {
namespace {

using ops::Linear;

void forward_few(const Linear& op, const Tensor& y) {
  const Tensor x = op.x.to(DType::kF32, MemoryTag::kWorkspace);
  const RowDots dots{.x = block_of(x),
                     .rows = x.dim(0),
                     .size = x.dim(1),
                     .weight = block_of(op.weight),
                     .y = block_of(y),
                     .scales = op.scales.defined() ? op.scales.data<float>() : nullptr,
                     .bias = &op.bias};
  const int64_t grain = std::max<int64_t>(4, (1 << 18) / std::max<int64_t>(dots.size, 1) / 4 * 4);
  parallel_ranges(op.weight.dim(0), grain, [&](int64_t begin, int64_t end) { dot_rows(dots, begin, end); });
}

Tensor forward_alike(const Linear& op) {
  const int64_t rows = op.x.dim(0), in = op.x.dim(1), out = op.weight.dim(0);
  const Tensor y = ops::empty_like(op.x, {rows, out});
  multiply(Product{.a = rows_of(op.x),
                   .b = transpose_of(op.weight),
                   .k = in,
                   .c = y,
                   .bias = op.bias,
                   .scales = op.scales});
  return y;
}

// Whether dots of rows are at least as fast as tiles. Dots pay for the sum of each, which costs most where
// they are short; long ones, and pairs of bfloat16, are as fast. Codes have the bits of what they mean, which
// has the dtype of x.
bool takes_dots(const Tensor& x) {
  constexpr int64_t kShort = 512;
  if (x.dim(0) > kFewLinearRows) return false;
  return x.dtype() != DType::kF32 || x.dim(1) >= kShort || x.dim(0) < rows_of_tiles();
}

Tensor forward(const Linear& op) {
  if (only_counts(op.x.device()) || !takes_dots(op.x)) return forward_alike(op);
  const Tensor y = ops::empty_like(op.x, {op.x.dim(0), op.weight.dim(0)});
  forward_few(op, y);
  return y;
}

// Each task owns some columns. Pieces of rows are summed first, which keeps rounding errors small.
void sum_columns(const Tensor& dy, const GradTarget& bias) {
  constexpr int64_t kColumns = 256, kPiece = 128;
  const int64_t rows = dy.dim(0);
  parallel_ranges(dy.dim(1), kColumns, [&](int64_t begin, int64_t end) {
    const Tensor columns = dy.narrow(1, begin, end - begin);
    sum_in_float32(bias, begin, end - begin, [&](float* sums) {
      for (int64_t row = 0; row < rows; row += kPiece) {
        float part[kColumns] = {};
        add_column_sums(block_of(columns, row), std::min(kPiece, rows - row), end - begin, part);
        for (int64_t i = 0; i < end - begin; ++i) sums[i] += part[i];
      }
    });
  });
}

Tensor backward(const Linear& op, const Tensor& dy_any, bool want_dx, const GradTarget& weight,
                const GradTarget& bias) {
  const Tensor dy = dy_any.contiguous(MemoryTag::kWorkspace);
  const int64_t rows = dy.dim(0), in = op.weight.dim(1), out = op.weight.dim(0);
  if (bias.wanted() && !only_counts(dy.device())) sum_columns(dy, bias);
  if (weight.wanted())
    multiply(Product{.a = transpose_of(dy),
                     .b = rows_of(op.x),
                     .k = rows,
                     .c = weight.buffer,
                     .accumulate = weight.accumulate});
  if (!want_dx) return {};
  const Tensor dx = ops::empty_like(dy, {rows, in});
  multiply(Product{.a = rows_of(dy), .b = rows_of(op.weight), .k = out, .c = dx});
  return dx;
}

}  // namespace

ops::Kernel<Linear> linear_kernel() {
  return {.accepts = refuse_float16,
          .forward = forward,
          .backward = backward,
          .traits = {.reads_codes = takes_few_rows},
          .outline = {forward, backward}};
}

void register_onednn_linear() {
  ops::kernels<Linear>().add("onednn", linear_kernel());
  ops::kernels<Linear>().add("onednn_invariant", {.accepts = refuse_but_float32,
                                                  .forward = forward_alike,
                                                  .backward = backward,
                                                  .batch_invariant = sums_alike(DType::kF32),
                                                  .outline = {forward_alike, backward}});
}

}  // namespace temper::backends
