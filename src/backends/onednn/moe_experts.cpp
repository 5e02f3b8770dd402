// Grouped products: each task multiplies some rows of one expert by some columns of its matrix, which is read
// where it lies. How a row is added up does not depend on the rows beside it.
#include <algorithm>
#include <numeric>

#include "backends/floats.h"
#include "backends/onednn/choices_by_expert.h"
#include "backends/onednn/gated_rows.h"
#include "backends/onednn/onednn.h"
#include "backends/onednn/packed_tile.h"
#include "base/threads.h"

namespace temper::backends {
namespace {

using ops::MoeExperts;

constexpr int64_t kRows = 128;    // of a task
constexpr int64_t kFewRows = 16;  // whose columns stay in a near cache while they are multiplied
constexpr int64_t kColumns = 256, kColumnsOfFew = 64;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

Tensor workspace(const Tensor& like, const Shape& shape, DType dtype) {
  return Tensor::empty(shape, dtype, MemoryTag::kWorkspace, like.device());
}
Tensor workspace(const Tensor& like, const Shape& shape) { return workspace(like, shape, like.dtype()); }

// A matrix of experts [experts · rows, columns], or its codes.
struct Weights {
  const Tensor& matrix;
  const Tensor scales;
  int64_t rows;  // of an expert

  // Some rows of one expert's, of `dtype`; the tensor keeps what was made.
  Matrix at(int64_t expert, int64_t first, int64_t count, DType dtype, Tensor& made) const {
    const int64_t row = expert * rows + first;
    made = matrix.narrow(0, row, count);
    if (scales.defined()) made = primitives::dequantized(made, scales.narrow(0, row, count), dtype);
    return rows_of(made);
  }
};

// Calls f(piece, first, count) on all threads for some rows of an expert and some of `columns` columns.
using Task = std::function<void(const ChoicesByExpert::Piece& piece, int64_t first, int64_t count)>;
void for_tasks(const ChoicesByExpert& rows, int64_t columns, const Task& f) {
  struct Strip {
    ChoicesByExpert::Piece piece;
    int64_t first, count;
  };
  std::vector<Strip> parts;
  for (const ChoicesByExpert::Piece& piece : rows.pieces(kRows)) {
    const int64_t step = piece.rows <= kFewRows ? kColumnsOfFew : kColumns;
    for (int64_t first = 0; first < columns; first += step)
      parts.push_back({piece, first, std::min(step, columns - first)});
  }
  parallel_for(static_cast<int64_t>(parts.size()), [&](int64_t i) {
    const Strip& part = parts[static_cast<size_t>(i)];
    f(part.piece, part.first, part.count);
  });
}

// c = a b in float32, of `rows` rows; b [depth, columns].
void multiply_rows(const Matrix& a, const Matrix& b, int64_t rows, int64_t columns, int64_t depth,
                   const WideBlock& c) {
  Tile tile{.a = a, .b = b, .m = rows, .n = columns, .k = depth};
  tile.c = c.data();
  tile.stride = c.stride();
  multiply(tile);
}

Matrix transposed(Matrix matrix) {
  matrix.transposed = !matrix.transposed;
  return matrix;
}

// The tokens' rows of a piece, compact.
Tensor gathered(const ChoicesByExpert& rows, const Tensor& x, const ChoicesByExpert::Piece& piece) {
  const Tensor own = workspace(x, {piece.rows, x.dim(1)});
  rows.gather(x, piece.row, piece.rows, own.raw());
  return own;
}

// The weights of rows, in their order.
std::vector<float> weights_of(const ChoicesByExpert& rows, const Tensor& weights) {
  std::vector<float> all;
  for (int64_t row = 0; row < rows.count(); ++row) all.push_back(weights.data<float>()[rows.choice(row)]);
  return all;
}

// gate|up of all rows, and what `down` reads.
void enter(const MoeExperts& op, const ChoicesByExpert& rows, const Tensor& gate_up, const Tensor& y) {
  const int64_t width = op.width(), hidden = op.hidden();
  const std::vector<float> weights = weights_of(rows, op.weights);
  const Weights matrix{op.gate_up, op.gate_up_scales, 2 * width};
  for_tasks(rows, width, [&](const ChoicesByExpert::Piece& piece, int64_t first, int64_t count) {
    const Tensor x = gathered(rows, op.x, piece);
    for (const int64_t half : {int64_t{0}, width}) {
      Tensor made;
      const Matrix b = transposed(matrix.at(piece.expert, half + first, count, x.dtype(), made));
      const WideBlock c(block_of(gate_up, piece.row, half + first), piece.rows, count, false);
      multiply_rows(rows_of(x), b, piece.rows, count, hidden, c);
      c.store();
    }
    gate_rows({block_of(gate_up, piece.row, first), width}, &weights[static_cast<size_t>(piece.row)],
              block_of(y, piece.row, first), piece.rows, count);
  });
}

// results = a times each expert's matrix, transposed or not; [rows, columns].
void multiply_all(const ChoicesByExpert& rows, const Tensor& a, const Weights& matrix, bool transpose,
                  const Tensor& results) {
  const int64_t depth = a.dim(1);
  for_tasks(rows, results.dim(1), [&](const ChoicesByExpert::Piece& piece, int64_t first, int64_t count) {
    Tensor made;
    const Matrix b = transpose ? transposed(matrix.at(piece.expert, first, count, a.dtype(), made))
                               : matrix.at(piece.expert, 0, depth, a.dtype(), made).block(0, first);
    const WideBlock c(block_of(results, piece.row, first), piece.rows, count, false);
    multiply_rows(rows_of(a.narrow(0, piece.row, piece.rows)), b, piece.rows, count, depth, c);
    c.store();
  });
}

// What the tasks of one of these phases take at most, on a device that only counts.
void take_for_tasks(const MoeExperts& op) {
  const int64_t rows = std::min(op.tokens() * op.top_k(), kRows), size = size_of(op.x.dtype());
  const int64_t columns = std::min(kColumns, std::max(op.hidden(), op.width())),
                depth = std::max(op.hidden(), 2 * op.width());
  const int64_t tasks = ceil_div(op.tokens() * op.top_k(), kRows) * ceil_div(op.width(), kColumns);
  const int64_t each = rows * op.hidden() * size + rows * columns * size_of(DType::kF32) +
                       columns * std::min<int64_t>(depth, 512) * size_of(DType::kF32);
  workspace(op.x, {std::min<int64_t>(tasks, num_threads()) * each}, DType::kU8);
}

MoeExperts::Output forward(const MoeExperts& op, bool want_saved) {
  const int64_t count = op.tokens() * op.top_k();
  MoeExperts::Output out{ops::empty_like(op.x, op.x.shape()), {}, {}};
  const Shape wide{count, 2 * op.width()};
  const Tensor gate_up = want_saved ? ops::empty_like(op.x, wide) : workspace(op.x, wide);
  if (want_saved) out.gate_up = gate_up;
  const Tensor y = workspace(op.x, {count, op.width()}), results = workspace(op.x, {count, op.hidden()});
  if (only_counts(op.x.device())) {
    take_for_tasks(op);
    return out;
  }
  const ChoicesByExpert rows(op.ids, op.experts);
  enter(op, rows, gate_up, y);
  multiply_all(rows, y, {op.down, op.down_scales, op.hidden()}, true, results);
  rows.sum(results, out.y);
  return out;
}

// The way back through `down` and swiglu.
struct Returned {
  Tensor dgate_up;  // [rows, 2 width]
  Tensor y;         // [rows, width]: what `down` read
  Tensor dots;      // [rows, strips] float32, whose sums are the weights' gradients
};

Returned empty_returned(const MoeExperts& op) {
  const int64_t count = op.tokens() * op.top_k();
  return {workspace(op.x, {count, 2 * op.width()}), workspace(op.x, {count, op.width()}),
          workspace(op.x, {count, ceil_div(op.width(), kColumnsOfFew)}, DType::kF32)};
}

void go_back(const MoeExperts& op, const ChoicesByExpert& rows, const Tensor& gate_up, const Tensor& dy,
             const Returned& to) {
  const int64_t width = op.width(), hidden = op.hidden();
  const std::vector<float> weights = weights_of(rows, op.weights);
  const Weights matrix{op.down, {}, hidden};
  to.dots.fill_zero();
  for_tasks(rows, width, [&](const ChoicesByExpert::Piece& piece, int64_t first, int64_t count) {
    const Tensor grads = gathered(rows, dy, piece), da = workspace(op.x, {piece.rows, count}, DType::kF32);
    Tensor made;
    const Matrix b = matrix.at(piece.expert, 0, hidden, op.x.dtype(), made).block(0, first);
    multiply_rows(rows_of(grads), b, piece.rows, count, hidden, WideBlock(block_of(da), 0, 0, false));
    gate_rows_backward({block_of(gate_up, piece.row, first), width}, &weights[static_cast<size_t>(piece.row)],
                       {.da = da.data<float>(),
                        .da_stride = count,
                        .d = {block_of(to.dgate_up, piece.row, first), width},
                        .y = block_of(to.y, piece.row, first),
                        .dots = to.dots.data<float>() + piece.row * to.dots.dim(1) + first / kColumnsOfFew,
                        .dots_stride = to.dots.dim(1)},
                       piece.rows, count);
  });
}

// Rows of some neighbouring experts, the first of which is row `first` of all.
struct Part {
  const Tensor& rows;
  int64_t first = 0;
  Tensor of(int64_t row, int64_t count) const { return rows.narrow(0, row - first, count); }
};

// target (+)= aᵀ b of the rows of each expert in [begin, end); experts without rows get zeros.
void add_gradients(const ChoicesByExpert& rows, std::pair<int64_t, int64_t> experts, const Part& a,
                   const Part& b, const GradTarget& target) {
  constexpr int64_t kTall = 192, kWide = 512;
  const int64_t height = a.rows.dim(1), size = b.rows.dim(1), down = ceil_div(height, kTall),
                across = ceil_div(size, kWide);
  parallel_for((experts.second - experts.first) * down * across, [&](int64_t i) {
    const int64_t expert = experts.first + i / (down * across), row = i / across % down * kTall,
                  column = i % across * kWide;
    const int64_t m = std::min(kTall, height - row), n = std::min(kWide, size - column);
    const WideBlock c(block_of(target.buffer, expert * height + row, column), m, n, target.accumulate);
    const int64_t own = rows.first(expert), count = rows.of(expert);
    if (count > 0) {
      Tile tile{.a = transpose_of(a.of(own, count)).block(row, 0),
                .b = rows_of(b.of(own, count)).block(0, column),
                .m = m,
                .n = n,
                .k = count};
      tile.c = c.data();
      tile.stride = c.stride();
      tile.accumulate = target.accumulate;
      multiply(tile);
    } else if (!target.accumulate) {
      for (int64_t r = 0; r < m; ++r) std::fill_n(c.data() + r * c.stride(), n, 0.0f);
    }
    c.store();
  });
}

// Experts one after the other whose rows fit `most`: each has at most as many as there are tokens.
std::vector<std::pair<int64_t, int64_t>> cut_experts(const ChoicesByExpert& rows, int64_t experts,
                                                     int64_t most) {
  std::vector<std::pair<int64_t, int64_t>> all;
  for (int64_t first = 0, end = 0; first < experts; first = end) {
    for (end = first + 1; end < experts && rows.first(end + 1) - rows.first(first) <= most;) ++end;
    all.emplace_back(first, end);
  }
  return all;
}

// Calls f(experts, their tokens' rows of x) for all experts, some at a time.
void for_gathered(const MoeExperts& op, const ChoicesByExpert& rows, const Tensor& x,
                  const std::function<void(std::pair<int64_t, int64_t>, const Part&)>& f) {
  constexpr int64_t kAtOnce = 64;
  const Tensor some = workspace(op.x, {op.tokens(), op.hidden()});
  for (const auto& experts : cut_experts(rows, op.experts, op.tokens())) {
    const int64_t first = rows.first(experts.first), count = rows.first(experts.second) - first;
    parallel_ranges(count, kAtOnce, [&](int64_t begin, int64_t end) {
      rows.gather(x, first + begin, end - begin, some.narrow(0, begin, end - begin).raw());
    });
    f(experts, {some, first});
  }
}

void add_matrix_gradients(const MoeExperts& op, const ChoicesByExpert& rows, const Tensor& dy,
                          const Returned& returned, const GradTarget& gate_up, const GradTarget& down) {
  if (gate_up.wanted())
    for_gathered(op, rows, op.x, [&](std::pair<int64_t, int64_t> experts, const Part& x) {
      add_gradients(rows, experts, {returned.dgate_up}, x, gate_up);
    });
  if (down.wanted())
    for_gathered(op, rows, dy, [&](std::pair<int64_t, int64_t> experts, const Part& grads) {
      add_gradients(rows, experts, grads, {returned.y}, down);
    });
}

// dweights of each choice: the sum of its row's dots.
void sum_dots(const ChoicesByExpert& rows, const Tensor& dots, const Tensor& dweights) {
  const int64_t strips = dots.dim(1);
  for (int64_t row = 0; row < rows.count(); ++row) {
    const float* const own = dots.data<float>() + row * strips;
    dweights.data<float>()[rows.choice(row)] = std::accumulate(own, own + strips, 0.0f);
  }
}

MoeExperts::Grads backward(const MoeExperts& op, const MoeExperts::Output& saved, const Tensor& dy,
                           MoeExperts::Wanted wanted, const GradTarget& gate_up, const GradTarget& down) {
  MoeExperts::Grads grads;
  if (wanted.x) grads.x = ops::empty_like(op.x, op.x.shape());
  if (wanted.weights) grads.weights = ops::empty_like(op.x, op.ids.shape(), DType::kF32);
  const Returned returned = empty_returned(op);
  const int64_t count = op.tokens() * op.top_k();
  if (only_counts(op.x.device())) {
    const Tensor results = workspace(op.x, {wanted.x ? count : op.tokens(), op.hidden()});
    take_for_tasks(op);
    return grads;
  }
  const ChoicesByExpert rows(op.ids, op.experts);
  go_back(op, rows, saved.gate_up, dy, returned);
  if (wanted.weights) sum_dots(rows, returned.dots, grads.weights);
  if (wanted.x) {
    const Tensor results = workspace(op.x, {count, op.hidden()});
    multiply_all(rows, returned.dgate_up, {op.gate_up, {}, 2 * op.width()}, false, results);
    rows.sum(results, grads.x);
  }
  add_matrix_gradients(op, rows, dy, returned, gate_up, down);
  return grads;
}

bool reads_codes(const Tensor&, const Tensor&) { return true; }

}  // namespace

ops::Kernel<MoeExperts> moe_experts_kernel() {
  return {.accepts = refuse_float16,
          .forward = forward,
          .backward = backward,
          // Products of our own add up each row in one order; those of a library promise nothing.
          .batch_invariant = has_packed_tile(DType::kF32) &&
                             (bf16_path() == Bf16Path::kWiden || has_packed_tile(DType::kBF16)),
          .traits = {.reads_codes = reads_codes},
          .outline = {forward, backward}};
}

}  // namespace temper::backends
