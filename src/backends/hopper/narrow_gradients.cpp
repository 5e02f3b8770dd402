// The kernel's arguments, and how its blocks share the work.
#include <algorithm>
#include <optional>
#include <set>

#include "backends/gpu_gemm/product.h"
#include "backends/hopper/matrix_boxes.h"
#include "backends/hopper/narrow_gradients.h"
#include "backends/hopper/narrow_gradients_kernel.h"

namespace temper::backends {
namespace {

struct Cut {
  int64_t rank;  // padded
  int64_t tiles, panels = 0, shares = 0;
  int64_t low_sums = 0, b_sums = 0;  // floats
  int64_t bytes() const { return (low_sums + b_sums) * 4; }
};

int64_t padded_rank(const NarrowGradients& op) {
  int64_t most = 0;
  for (const auto& slice : op.slices) most = std::max(most, slice.b.dim(1));
  return most <= 16 ? 16 : 32;
}

Cut cut_into(int64_t tiles, const NarrowGradients& op, int64_t multiprocessors) {
  Cut cut{padded_rank(op), tiles};
  for (const auto& slice : op.slices) cut.panels += parts(slice.b.dim(0), tiles * hopper::kNarrowColumns);
  const int64_t row_tiles = parts(op.dy.dim(0), hopper::kNarrowRows),
                each = parts(row_tiles, std::clamp<int64_t>(multiprocessors / cut.panels, 1, row_tiles));
  cut.shares = parts(row_tiles, each);
  cut.low_sums = cut.panels * op.dy.dim(0) * cut.rank;
  cut.b_sums = cut.shares * cut.panels * tiles * hopper::kNarrowColumns * cut.rank;
  return cut;
}

// Bytes that pass until the last block is done, as if every multiprocessor had what the busiest has; sums are
// written and read.
int64_t cost(const Cut& cut, int64_t rows, int64_t multiprocessors) {
  const int64_t row_tiles = parts(parts(rows, hopper::kNarrowRows), cut.shares),
                rounds = parts(cut.panels * cut.shares, multiprocessors);
  return rounds * row_tiles * cut.tiles * multiprocessors * hopper::kNarrowRows * hopper::kNarrowColumns * 2 +
         2 * cut.bytes();
}

// None where their sums are too large.
std::optional<Cut> best_cut(const NarrowGradients& op) {
  const int64_t multiprocessors = device::multiprocessors(op.dy.device()), rows = op.dy.dim(0),
                most = hopper::most_tiles(static_cast<int>(padded_rank(op)));
  std::optional<Cut> best;
  for (int64_t tiles = 1; tiles <= most; ++tiles) {
    const Cut cut = cut_into(tiles, op, multiprocessors);
    if (cut.bytes() > kProductWorkspace) continue;
    if (!best || cost(cut, rows, multiprocessors) < cost(*best, rows, multiprocessors)) best = cut;
  }
  return best;
}

bool suits(const NarrowGradients& op) {
  if (op.slices.empty() || op.slices.size() > hopper::kMostSlices || !can_be_copied(op.dy)) return false;
  std::set<const void*> written;
  std::set<DType> dtypes;
  for (const NarrowGradients::Slice& slice : op.slices) {
    const int64_t rank = slice.b.dim(1);
    if (slice.b.dim(0) == 0 || rank == 0 || rank % 8 != 0 || rank > hopper::kMostRank ||
        !slice.b.is_contiguous() || !can_be_copied(slice.b) || !can_be_copied(slice.low) ||
        !can_be_copied(slice.dlow) || !may_begin_at(slice.column))
      return false;
    if (!slice.db.wanted()) continue;
    dtypes.insert(slice.db.buffer.dtype());
    if (!slice.db.buffer.is_contiguous() || !written.insert(slice.db.buffer.raw()).second) return false;
  }
  return dtypes.size() < 2;
}

void launch(const NarrowGradients& op, const Cut& cut) {
  const Device device = op.dy.device();
  const auto floats = [&](int64_t count) {
    return Tensor::empty({count}, DType::kF32, MemoryTag::kWorkspace, device);
  };
  const Tensor low_sums = floats(cut.low_sums), b_sums = floats(cut.b_sums);
  hopper::NarrowArguments arguments{};
  arguments.dy = boxes_of(op.dy, hopper::kNarrowRows);
  arguments.low_sums = low_sums.data<float>();
  arguments.b_sums = b_sums.data<float>();
  arguments.rows = static_cast<int>(op.dy.dim(0));
  arguments.tiles = static_cast<int>(cut.tiles);
  arguments.shares = static_cast<int>(cut.shares);
  const auto elements = [](const Tensor& tensor) { return static_cast<__nv_bfloat16*>(tensor.raw()); };
  for (const auto& slice : op.slices) {
    auto& made = arguments.slices[arguments.slice_count++];
    made.b = elements(slice.b);
    made.low = elements(slice.low);
    made.dlow = elements(slice.dlow);
    made.low_stride = slice.low.stride(0);
    made.dlow_stride = slice.dlow.stride(0);
    made.column = static_cast<int>(slice.column);
    made.columns = static_cast<int>(slice.b.dim(0));
    made.rank = static_cast<int>(slice.b.dim(1));
    made.panel = arguments.panels;
    made.scale = slice.scale;
    arguments.panels += static_cast<int>(parts(made.columns, cut.tiles * hopper::kNarrowColumns));
    if (!slice.db.wanted()) continue;
    made.db = slice.db.buffer.raw();
    made.accumulate = slice.db.accumulate;
    arguments.db_is_bfloat16 = slice.db.buffer.dtype() == DType::kBF16;
  }
  hopper::launch_narrow_gradients(static_cast<int>(cut.rank), arguments, device::stream(device));
  device::check_launch("narrow_gradients");
}

}  // namespace

bool narrow_gradients_on_hopper(const NarrowGradients& op, int64_t fewest_rows) {
  // Its sums take no more than a product's workspace.
  const std::optional<Cut> cut =
      !only_counts(op.dy.device()) && op.dy.dim(0) >= std::max<int64_t>(fewest_rows, 1) && suits(op)
          ? best_cut(op)
          : std::nullopt;
  cut ? launch(op, *cut) : narrow_gradients(op);
  return cut.has_value();
}

}  // namespace temper::backends
