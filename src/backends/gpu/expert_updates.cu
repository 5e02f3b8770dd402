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

// A thread has N neighbouring columns.
template <class T, int N>
__global__ void __launch_bounds__(kThreads) write_part(Part<T> p, int64_t count) {
  const auto in_row = static_cast<uint32_t>(p.width / N), outputs = static_cast<uint32_t>(p.outputs);
  for (int64_t i = global_thread(); i < count; i += grid_threads()) {
    const int64_t all = i / in_row, expert = all / outputs, row = all - expert * outputs - p.row;
    const int64_t column = (i - all * in_row) * N;
    Pack<T, N> values{};
    if (row >= 0 && row < p.rows && column < p.rank) {
      values = load_pack<T, N>(p.b + (expert * p.rows + row) * p.rank + column);
#pragma unroll
      for (int k = 0; k < N; ++k) values.values[k] = narrow<T>(p.scale * widen(values.values[k]));
    }
    store_pack(p.to + all * p.columns + p.first + column, values);
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
      const Tensor b = aligned(update.slices[s].b);
      const int64_t rank = b.dim(1), width = s + 1 == update.slices.size() ? columns - first : rank;
      const Part<T> part{static_cast<const T*>(b.raw()), static_cast<T*>(all.raw()), outputs, columns,
                         update.slices[s].column, b.dim(0) / experts, first, rank, width, update.slices[s].scale};
      const auto launch = [&]<int N>() {
        const int64_t count = experts * outputs * width / N;
        write_part<T, N><<<blocks_for(count), kThreads, 0, device::stream(device)>>>(part, count);
      };
      constexpr int kMost = kLanes<T>;
      (rank % kMost == 0 && first % kMost == 0) ? launch.template operator()<kMost>() : launch.template operator()<1>();
      first += rank;
    }
  });
  device::check_launch("matrices_of_slices");
  return all;
}

}  // namespace temper::backends
