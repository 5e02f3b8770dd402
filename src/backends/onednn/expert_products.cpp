#include "backends/onednn/expert_products.h"

#include <algorithm>
#include <numeric>

#include "backends/onednn/gated_rows.h"
#include "base/threads/threads.h"

namespace temper::backends {
namespace {

using ops::MoeExperts;

// Rows of a task: the more, the less often a matrix is packed, but every thread should have some tasks.
constexpr int64_t kLeastRows = 128, kMostRows = 512, kTasksOfThread = 8;
constexpr int64_t kFewRows = 16;  // whose columns stay in a near cache while they are multiplied
constexpr int64_t kColumns = 256, kColumnsOfFew = 64;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t rows_of_task(int64_t all) {
  return std::clamp(all / (kTasksOfThread * num_threads()), kLeastRows, kMostRows);
}

Tensor workspace(const Tensor& like, const Shape& shape, DType dtype) {
  return Tensor::empty(shape, dtype, MemoryTag::kWorkspace, like.device());
}

// Calls f(piece, first, count) on all threads for some rows of an expert and some of `columns` columns.
using ExpertTask = std::function<void(const ChoicesByExpert::Piece& piece, int64_t first, int64_t count)>;
void for_tasks(const ChoicesByExpert& rows, int64_t columns, const ExpertTask& f) {
  struct Strip {
    ChoicesByExpert::Piece piece;
    int64_t first, count;
  };
  std::vector<Strip> parts;
  for (const ChoicesByExpert::Piece& piece : rows.pieces(rows_of_task(rows.count()))) {
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

// The tokens' rows of a piece, compact.
Tensor gathered(const ChoicesByExpert& rows, const Tensor& x, const ChoicesByExpert::Piece& piece) {
  const Tensor own = workspace(x, {piece.rows, x.dim(1)}, x.dtype());
  rows.gather(x, piece.row, piece.rows, own.raw());
  return own;
}

// Experts one after the other whose rows fit `most`: each has at most as many as there are tokens.
std::vector<ExpertRange> cut_experts(const ChoicesByExpert& rows, int64_t experts, int64_t most) {
  std::vector<ExpertRange> all;
  for (int64_t first = 0, end = 0; first < experts; first = end) {
    for (end = first + 1; end < experts && rows.first(end + 1) - rows.first(first) <= most;) ++end;
    all.emplace_back(first, end);
  }
  return all;
}

// Of a piece's rows and the columns [first, first + count) of the product, which lie at `c`.
void add_update(const ExpertTerms& update, const ChoicesByExpert::Piece& piece, int64_t first, int64_t count,
                float* c, int64_t stride) {
  if (update.bias.defined()) {
    const float* const bias = update.bias.data<float>() + piece.expert * update.bias.dim(1) + first;
    for (int64_t r = 0; r < piece.rows; ++r) {
      const float factor =
          update.factors == nullptr ? 1 : (*update.factors)[static_cast<size_t>(piece.row + r)];
      for (int64_t i = 0; i < count; ++i) c[r * stride + i] += factor * bias[i];
    }
  }
  for (const ExpertTerms::Part& part : update.parts) {
    const int64_t begin = std::max(first, part.column),
                  end = std::min(first + count, part.column + part.columns);
    if (begin >= end) continue;
    const int64_t high = part.transposed ? part.columns : part.rank, in_part = begin - part.column;
    const Matrix own = rows_of(part.matrices).block(piece.expert * high, 0);
    Tile tile{.a = rows_of(update.low).block(piece.row, part.first),
              .b = part.transposed ? transposed(own.block(in_part, 0)) : own.block(0, in_part),
              .m = piece.rows,
              .n = end - begin,
              .k = part.rank,
              .accumulate = true};
    tile.c = c + (begin - first);
    tile.stride = stride;
    multiply(tile);
  }
}

}  // namespace

std::vector<float> weights_of(const ChoicesByExpert& rows, const Tensor& weights) {
  std::vector<float> all;
  for (int64_t row = 0; row < rows.count(); ++row) all.push_back(weights.data<float>()[rows.choice(row)]);
  return all;
}

Matrix ExpertMatrix::at(int64_t expert, int64_t first, int64_t count, DType dtype, Tensor& made) const {
  const int64_t row = expert * rows + first;
  made = matrix.narrow(0, row, count);
  if (scales.defined()) made = primitives::dequantized(made, scales.narrow(0, row, count), dtype);
  return rows_of(made);
}

Tensor expert_workspace(const MoeExperts& op, const Shape& shape, DType dtype) {
  return workspace(op.x, shape, dtype);
}
Tensor expert_workspace(const MoeExperts& op, const Shape& shape) {
  return expert_workspace(op, shape, op.x.dtype());
}

void enter_experts(const MoeExperts& op, const ChoicesByExpert& rows, const ExpertTerms& update,
                   const Tensor& gate_up, const Tensor& y) {
  const int64_t width = op.width(), hidden = op.hidden();
  const std::vector<float> weights = weights_of(rows, op.weights);
  const ExpertMatrix matrix{op.gate_up, op.gate_up_scales, 2 * width};
  for_tasks(rows, width, [&](const ChoicesByExpert::Piece& piece, int64_t first, int64_t count) {
    const Tensor x = gathered(rows, op.x, piece);
    for (const int64_t half : {int64_t{0}, width}) {
      Tensor made;
      const Matrix b = transposed(matrix.at(piece.expert, half + first, count, x.dtype(), made));
      const WideBlock c(block_of(gate_up, piece.row, half + first), piece.rows, count, false);
      multiply_rows(rows_of(x), b, piece.rows, count, hidden, c);
      add_update(update, piece, half + first, count, c.data(), c.stride());
      c.store();
    }
    gate_rows({block_of(gate_up, piece.row, first), width, op.gate}, &weights[static_cast<size_t>(piece.row)],
              block_of(y, piece.row, first), piece.rows, count);
  });
}

void multiply_by_experts(const ChoicesByExpert& rows, const Tensor& a, const ExpertMatrix& matrix,
                         bool transpose, const ExpertTerms& update, const Tensor& results) {
  const int64_t depth = a.dim(1);
  for_tasks(rows, results.dim(1), [&](const ChoicesByExpert::Piece& piece, int64_t first, int64_t count) {
    Tensor made;
    const Matrix b = transpose ? transposed(matrix.at(piece.expert, first, count, a.dtype(), made))
                               : matrix.at(piece.expert, 0, depth, a.dtype(), made).block(0, first);
    const WideBlock c(block_of(results, piece.row, first), piece.rows, count, false);
    multiply_rows(rows_of(a.narrow(0, piece.row, piece.rows)), b, piece.rows, count, depth, c);
    add_update(update, piece, first, count, c.data(), c.stride());
    c.store();
  });
}

void run_experts(const ops::MoeExperts& op, const MakeTerms& of_gate_up, const MakeTerms& of_down,
                 const Tensor& gate_up, const Tensor& y) {
  const int64_t count = op.tokens() * op.top_k();
  const Tensor inner = expert_workspace(op, {count, op.width()}),
               results = expert_workspace(op, {count, op.hidden()});
  if (only_counts(op.x.device())) return take_for_expert_tasks(op);
  const ChoicesByExpert rows(op.ids, op.experts);
  enter_experts(op, rows, of_gate_up(rows, op.x), gate_up, inner);
  multiply_by_experts(rows, inner, {op.down, op.down_scales, op.hidden()}, true, of_down(rows, inner),
                      results);
  rows.sum(results, y);
}

ReturnedRows empty_returned_rows(const MoeExperts& op) {
  const int64_t count = op.tokens() * op.top_k();
  return {expert_workspace(op, {count, 2 * op.width()}), expert_workspace(op, {count, op.width()}),
          workspace(op.x, {count, ceil_div(op.width(), kColumnsOfFew)}, DType::kF32)};
}

void leave_experts(const MoeExperts& op, const ChoicesByExpert& rows, const ExpertTerms& update,
                   const Tensor& gate_up, const Tensor& dy, const ReturnedRows& to) {
  const int64_t width = op.width(), hidden = op.hidden();
  const std::vector<float> weights = weights_of(rows, op.weights);
  const ExpertMatrix matrix{op.down, {}, hidden};
  to.dots.fill_zero();
  for_tasks(rows, width, [&](const ChoicesByExpert::Piece& piece, int64_t first, int64_t count) {
    const Tensor grads = gathered(rows, dy, piece), da = workspace(op.x, {piece.rows, count}, DType::kF32);
    Tensor made;
    const Matrix b = matrix.at(piece.expert, 0, hidden, op.x.dtype(), made).block(0, first);
    multiply_rows(rows_of(grads), b, piece.rows, count, hidden, WideBlock(block_of(da), 0, 0, false));
    add_update(update, piece, first, count, da.data<float>(), count);
    gate_rows_backward({block_of(gate_up, piece.row, first), width, op.gate},
                       &weights[static_cast<size_t>(piece.row)],
                       {.da = da.data<float>(),
                        .da_stride = count,
                        .d = {block_of(to.dgate_up, piece.row, first), width},
                        .y = block_of(to.y, piece.row, first),
                        .dots = to.dots.data<float>() + piece.row * to.dots.dim(1) + first / kColumnsOfFew,
                        .dots_stride = to.dots.dim(1)},
                       piece.rows, count);
  });
}

void sum_dots(const ChoicesByExpert& rows, const Tensor& dots, const Tensor& dweights) {
  const int64_t strips = dots.dim(1);
  for (int64_t row = 0; row < rows.count(); ++row) {
    const float* const own = dots.data<float>() + row * strips;
    dweights.data<float>()[rows.choice(row)] = std::accumulate(own, own + strips, 0.0f);
  }
}

void narrow_by_experts(const ChoicesByExpert& rows, const Tensor& given, bool gathers,
                       const std::vector<ExpertTerms::Part>& parts, const std::vector<float>& factors,
                       const Tensor& low) {
  const std::vector<ChoicesByExpert::Piece> pieces = rows.pieces(rows_of_task(rows.count()));
  parallel_for(static_cast<int64_t>(pieces.size()), [&](int64_t i) {
    const ChoicesByExpert::Piece& piece = pieces[static_cast<size_t>(i)];
    const Tensor own = gathers ? gathered(rows, given, piece) : given.narrow(0, piece.row, piece.rows);
    for (const ExpertTerms::Part& part : parts) {
      const int64_t high = part.transposed ? part.columns : part.rank;
      const Matrix matrix = rows_of(part.matrices).block(piece.expert * high, 0);
      const WideBlock c(block_of(low, piece.row, part.first), piece.rows, part.rank, false);
      multiply_rows(rows_of(own).block(0, part.column), part.transposed ? matrix : transposed(matrix),
                    piece.rows, part.rank, part.columns, c);
      for (int64_t row = 0; row < piece.rows; ++row)
        for (int64_t i = 0; i < part.rank; ++i)
          c.data()[row * c.stride() + i] *= factors[static_cast<size_t>(part.first + i)];
      c.store();
    }
  });
}

void add_expert_gradients(const ChoicesByExpert& rows, ExpertRange experts, const RowsOfExperts& a,
                          const RowsOfExperts& b, const GradTarget& target) {
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

void for_gathered_experts(const MoeExperts& op, const ChoicesByExpert& rows, const Tensor& x,
                          const std::function<void(ExpertRange, const RowsOfExperts&)>& f) {
  constexpr int64_t kAtOnce = 64;
  const Tensor some = expert_workspace(op, {op.tokens(), op.hidden()});
  for (const auto& experts : cut_experts(rows, op.experts, op.tokens())) {
    const int64_t first = rows.first(experts.first), count = rows.first(experts.second) - first;
    parallel_ranges(count, kAtOnce, [&](int64_t begin, int64_t end) {
      rows.gather(x, first + begin, end - begin, some.narrow(0, begin, end - begin).raw());
    });
    f(experts, {some, first});
  }
}

namespace {

// The most tasks and rows of for_tasks that are in work at the same time, of `all` rows in total, however
// these are distributed over experts: a piece belongs to one expert.
struct TasksAtOnce {
  TasksAtOnce(int64_t all, int64_t experts, int64_t columns) {
    const int64_t most = rows_of_task(all), strips = ceil_div(columns, kColumns),
                  pieces = std::min(all, ceil_div(all, most) + experts - 1);
    count = std::min<int64_t>(pieces * strips, num_threads());
    rows = std::min(count * std::min(all, most), all * strips);
  }
  int64_t count, rows;  // tasks, and rows of all of them
};

}  // namespace

void take_for_expert_tasks(const MoeExperts& op) {
  const int64_t columns = std::min(kColumns, std::max(op.hidden(), op.width())),
                depth = std::min<int64_t>(std::max(op.hidden(), 2 * op.width()), 512);
  const TasksAtOnce tasks(op.tokens() * op.top_k(), op.experts, op.width());
  const int64_t of_rows = tasks.rows * (op.hidden() * size_of(op.x.dtype()) + columns * size_of(DType::kF32));
  workspace(op.x, {of_rows + tasks.count * columns * depth * size_of(DType::kF32)}, DType::kU8);
}

void take_for_products(const Tensor& like, int64_t rows, int64_t experts, int64_t columns, int64_t depth) {
  const int64_t wide = std::min(kColumns, columns);
  const TasksAtOnce tasks(rows, experts, columns);
  // Results that are not float32 are summed in a separate float32 buffer.
  const int64_t sums = like.dtype() == DType::kF32 ? 0 : tasks.rows * wide;
  workspace(like, {(sums + tasks.count * wide * std::min<int64_t>(depth, 512)) * size_of(DType::kF32)},
            DType::kU8);
}

}  // namespace temper::backends
