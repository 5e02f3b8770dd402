// The kernel's arguments, and which rows of a product it gets.
#include <algorithm>
#include <span>

#include "backends/hopper/matrix_boxes.h"
#include "backends/hopper/product_kernel.h"
#include "backends/hopper/updated_product.h"

namespace temper::backends {
namespace {

using Update = UpdatedProduct::Update;

// Rows whose updates are the same.
struct Run {
  int64_t row, rows;
  std::span<const Update> updates;
};

// The part of the GPU's time in which its multiprocessors, two by two, have tiles.
double filled(int64_t rows, int64_t columns, int multiprocessors) {
  const int64_t across = parts(columns, hopper::kTileColumns),
                tiles = parts(rows, hopper::kTileRows) * across,
                rounds = parts(parts(rows, 2 * hopper::kTileRows) * across, multiprocessors / 2);
  return static_cast<double>(tiles) / static_cast<double>(rounds * multiprocessors);
}

bool suits(const UpdatedProduct& p, const Run& run, double least_filled) {
  if (run.updates.empty() || run.updates.size() > hopper::kMostUpdates) return false;
  for (const Update& update : run.updates)
    if (!can_be_copied(update.low) || !can_be_copied(update.b) || !may_begin_at(update.column)) return false;
  return filled(run.rows, p.columns(), device::multiprocessors(p.d.device())) >= least_filled;
}

void launch(const UpdatedProduct& p, const Run& run) {
  const auto own_rows = [&](const Tensor& tensor) { return tensor.narrow(0, run.row, run.rows); };
  const auto memory_of = [](const Tensor& tensor) { return static_cast<__nv_bfloat16*>(tensor.raw()); };
  const Tensor a = own_rows(p.a), d = own_rows(p.d);
  const int rows_of_b = p.transpose_b ? hopper::kRowsOfB : hopper::kStep;
  hopper::ProductArguments arguments{};
  arguments.a = boxes_of(a, hopper::kRowsOfA);
  arguments.b = boxes_of(p.b, rows_of_b);
  arguments.d = memory_of(d);
  arguments.d_stride = d.stride(0);
  arguments.rows = static_cast<int>(d.dim(0));
  arguments.columns = static_cast<int>(p.columns());
  arguments.depth = static_cast<int>(a.dim(1));
  arguments.bias = p.bias.defined() ? memory_of(p.bias) : nullptr;
  hopper::Gate gate = hopper::Gate::kNone;
  if (p.gate_up.defined()) {
    gate = hopper::Gate::kBackward;
    arguments.gate_up = boxes_of(own_rows(p.gate_up), hopper::kRowsOfA);
  } else if (p.y.defined()) {
    gate = hopper::Gate::kForward;
    arguments.columns /= 2;
  }
  if (p.y.defined()) {
    arguments.y = memory_of(own_rows(p.y));
    arguments.y_stride = p.y.stride(0);
  }
  for (const Update& update : run.updates)
    arguments.updates[arguments.update_count++] = {
        boxes_of(update.low, hopper::kRowsOfA), boxes_of(update.b, rows_of_b),
        static_cast<int>(update.column), static_cast<int>(update.columns(p.transpose_b)),
        static_cast<int>(update.low.dim(1))};
  const Device device = p.d.device();
  hopper::launch_product(arguments, p.transpose_b, gate, device::multiprocessors(device),
                         device::stream(device));
  device::check_launch("product_with_updates");
}

// All rows of d in their order; `updates` are in that order, too.
std::vector<Run> runs_of(std::span<const Update> updates, int64_t rows) {
  std::vector<Run> runs;
  int64_t row = 0;
  for (size_t first = 0; first < updates.size();) {
    const Update& update = updates[first];
    const size_t end =
        static_cast<size_t>(std::find_if(updates.begin() + static_cast<std::ptrdiff_t>(first), updates.end(),
                                         [&](const Update& next) { return next.row != update.row; }) -
                            updates.begin());
    for (const Update& other : updates.subspan(first, end - first))
      invariant(other.low.dim(0) == update.low.dim(0), "updates of one row have the same rows");
    if (row < update.row) runs.push_back({row, update.row - row, {}});
    runs.push_back({update.row, update.low.dim(0), updates.subspan(first, end - first)});
    row = update.row + update.low.dim(0);
    first = end;
  }
  if (row < rows) runs.push_back({row, rows - row, {}});
  return runs;
}

// Some rows of a product as one of its own.
UpdatedProduct rows_of(const UpdatedProduct& p, int64_t row, int64_t end) {
  UpdatedProduct part = p;
  part.updates.clear();
  for (Tensor* tensor : {&part.a, &part.d, &part.gate_up, &part.y})
    if (tensor->defined()) *tensor = tensor->narrow(0, row, end - row);
  for (Update update : p.updates) {
    if (update.row < row || update.row >= end) continue;
    update.row -= row;
    part.updates.push_back(std::move(update));
  }
  return part;
}

}  // namespace

int64_t multiply_and_update_on_hopper(const UpdatedProduct& p, double least_filled) {
  invariant(p.gate_up.defined() ? !p.transpose_b : p.transpose_b || !p.y.defined(),
            "swiglu is of a product by transposed weights, its gradient of one by weights as they are");
  if (only_counts(p.d.device())) return p.d.dim(0);  // it needs no memory besides d
  constexpr int64_t kColumnsStored = 8;
  const auto suits_copies = [](const Tensor& tensor) { return !tensor.defined() || can_be_copied(tensor); };
  // Gate and up, too, begin at whole chunks.
  const int64_t columns = p.y.defined() && !p.gate_up.defined() ? p.columns() / 2 : p.columns();
  const bool can_be =
      suits_copies(p.a) && suits_copies(p.b) && suits_copies(p.d) && suits_copies(p.gate_up) &&
      suits_copies(p.y) && columns % kColumnsStored == 0 &&
      (!p.bias.defined() || reinterpret_cast<uintptr_t>(p.bias.raw()) % sizeof(__nv_bfloat162) == 0);
  std::vector<Update> updates = p.updates;
  std::stable_sort(updates.begin(), updates.end(),
                   [](const Update& one, const Update& other) { return one.row < other.row; });
  const int64_t rows = p.d.dim(0);
  int64_t left = 0, taken = 0;  // the first row that is not computed yet
  for (const Run& run : runs_of(updates, rows)) {
    if (!can_be || !suits(p, run, least_filled)) continue;
    if (left < run.row) multiply_and_update(rows_of(p, left, run.row));
    launch(p, run);
    left = run.row + run.rows;
    taken += run.rows;
  }
  if (left < rows) multiply_and_update(rows_of(p, left, rows));
  return taken;
}

}  // namespace temper::backends
