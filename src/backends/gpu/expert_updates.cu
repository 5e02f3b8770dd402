#include "backends/gpu/expert_updates.h"

#include "backends/gpu/device_code.h"

namespace temper::backends {
namespace {

// One slice's columns of all experts' rows; those of other rows are zeros.
template <class T>
struct Part {
  const T* b;
  T* to;
  int64_t outputs, columns;          // of an expert; of `to`
  int64_t row, rows, first, rank;    // the slice's rows and columns
  int64_t width;                     // columns that are written: the last slice's reach to the end
  float scale;
};

template <class T>
__global__ void __launch_bounds__(kThreads) write_part(Part<T> p, int64_t count) {
  for (int64_t i = global_thread(); i < count; i += grid_threads()) {
    const int64_t all = i / p.width, column = i % p.width, expert = all / p.outputs,
                  row = all % p.outputs - p.row;
    const bool inside = row >= 0 && row < p.rows && column < p.rank;
    p.to[all * p.columns + p.first + column] =
        inside ? narrow<T>(p.scale * widen(p.b[(expert * p.rows + row) * p.rank + column])) : narrow<T>(0.0f);
  }
}

}  // namespace

int64_t low_columns(const ops::LoraMoeExperts::Update& update, int64_t experts) {
  constexpr int64_t kChunk = 8;
  return update.slices.empty() ? 0 : (update.a.dim(0) / experts + kChunk - 1) / kChunk * kChunk;
}

Tensor matrices_of_slices(const ops::LoraMoeExperts::Update& update, int64_t experts, int64_t outputs) {
  if (update.slices.empty()) return {};
  const Device device = update.a.device();
  const int64_t columns = low_columns(update, experts);
  const Tensor all = Tensor::empty({experts * outputs, columns}, update.a.dtype(), MemoryTag::kWorkspace, device);
  if (only_counts(device)) return all;
  visit_device_float(all.dtype(), [&]<class T>() {
    int64_t first = 0;
    for (size_t s = 0; s < update.slices.size(); ++s) {
      const auto& slice = update.slices[s];
      const int64_t rank = slice.b.dim(1), width = s + 1 == update.slices.size() ? columns - first : rank,
                    count = experts * outputs * width;
      const Part<T> part{static_cast<const T*>(slice.b.raw()), static_cast<T*>(all.raw()), outputs, columns,
                         slice.column, slice.b.dim(0) / experts, first, rank, width, slice.scale};
      write_part<T><<<blocks_for(count), kThreads, 0, device::stream(device)>>>(part, count);
      first += rank;
    }
  });
  device::check_launch("matrices_of_slices");
  return all;
}

}  // namespace temper::backends
