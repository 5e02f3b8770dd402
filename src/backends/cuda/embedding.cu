#include "backends/floats.h"
#include "backends/gpu/device_code.h"
#include "ops/embedding/embedding.h"

namespace temper::backends {
namespace {

using ops::Embedding;

template <class T>
__global__ void look_up(const T* table, int64_t rows, int64_t first, const int* ids, T* y, int64_t hidden) {
  const int64_t row = ids[blockIdx.x] - first;
  const bool here = row >= 0 && row < rows;
  const T* from = table + (here ? row : 0) * hidden;
  T* to = y + int64_t{blockIdx.x} * hidden;
  for (int64_t i = threadIdx.x; i < hidden; i += blockDim.x) to[i] = here ? from[i] : T(0.f);
}

constexpr int kColumns = 8;    // of a row, held by a thread
constexpr int kListed = 1024;  // occurrences of an id, found before their rows are summed

// Adds the listed tokens' rows, in their order, to the columns that this thread holds.
template <class T>
__device__ void add_listed(const T* dy, const int* listed, int count, int64_t hidden, int64_t first,
                           float (&sums)[kColumns]) {
  for (int n = 0; n < count; ++n) {
    const T* row = dy + int64_t{listed[n]} * hidden + first;
    for (int c = 0; c < kColumns; ++c)
      if (first + c * kThreads < hidden) sums[c] += widen(row[c * kThreads]);
  }
}

// One block a token. The block of an id's first occurrence sums all of them, in the order of the tokens; the
// others leave. Looking through the ids costs little compared with the rows.
template <class T, class G>
__global__ void sum_rows(const T* dy, const int* ids, int64_t tokens, int64_t hidden, int64_t rows,
                         int64_t first_row, G* grad) {
  __shared__ int listed[kListed];
  __shared__ int before_warp[kThreads / 32];
  const int64_t mine = blockIdx.x;
  const int id = ids[mine];
  const int64_t row = id - first_row;
  if (row < 0 || row >= rows) return;
  bool before = false;
  for (int64_t t = threadIdx.x; t < mine; t += kThreads) before = before || ids[t] == id;
  if (__syncthreads_or(before)) return;
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int64_t column = 0; column < hidden; column += kThreads * kColumns) {
    const int64_t first = column + threadIdx.x;
    G* out = grad + row * hidden + first;
    float sums[kColumns];
    for (int c = 0; c < kColumns; ++c) sums[c] = first + c * kThreads < hidden ? widen(out[c * kThreads]) : 0.f;
    int count = 0;
    for (int64_t begin = mine; begin < tokens; begin += kThreads) {
      const int64_t t = begin + threadIdx.x;
      const bool hit = t < tokens && ids[t] == id;
      if (__syncthreads_or(hit) == 0) continue;
      const unsigned votes = __ballot_sync(0xffffffffu, hit);
      if (lane == 0) before_warp[warp] = __popc(votes);
      __syncthreads();
      int place = count, all = count;
      for (unsigned w = 0; w < kThreads / 32; ++w) {
        place += w < warp ? before_warp[w] : 0;
        all += before_warp[w];
      }
      if (hit) listed[place + __popc(votes & ((1u << lane) - 1))] = static_cast<int>(t);
      count = all;
      if (count <= kListed - kThreads) continue;
      __syncthreads();
      add_listed(dy, listed, count, hidden, first, sums);
      count = 0;
      __syncthreads();
    }
    __syncthreads();
    add_listed(dy, listed, count, hidden, first, sums);
    __syncthreads();
    for (int c = 0; c < kColumns; ++c)
      if (first + c * kThreads < hidden) out[c * kThreads] = narrow<G>(sums[c]);
  }
}

Tensor forward(const Embedding& op) {
  const Device device = op.table.device();
  const Tensor ids = op.ids.on(device);
  const int64_t tokens = ids.numel(), hidden = op.table.dim(1);
  const Tensor y = Tensor::empty({tokens, hidden}, op.table.dtype(), MemoryTag::kActivations, device);
  if (y.numel() == 0) return y;
  visit_wide_or_brain(y.dtype(), [&]<class T>() {
    look_up<<<static_cast<unsigned>(tokens), kThreads, 0, device::stream(device)>>>(
        static_cast<const T*>(op.table.raw()), op.table.dim(0), op.first, ids.data<int32_t>(),
        static_cast<T*>(y.raw()), hidden);
  });
  device::check_launch("embedding");
  return y;
}

void backward(const Embedding& op, const Tensor& dy, const GradTarget& table) {
  const Device device = op.table.device();
  const Tensor ids = op.ids.on(device);
  if (!table.accumulate) table.buffer.fill_zero();
  if (dy.numel() == 0) return;
  visit_wide_or_brain(dy.dtype(), [&]<class T>() {
    visit_wide_or_brain(table.buffer.dtype(), [&]<class G>() {
      sum_rows<<<static_cast<unsigned>(ids.numel()), kThreads, 0, device::stream(device)>>>(
          static_cast<const T*>(dy.raw()), ids.data<int32_t>(), ids.numel(), dy.dim(1), op.table.dim(0),
          op.first, static_cast<G*>(table.buffer.raw()));
    });
  });
  device::check_launch("embedding backward");
}

}  // namespace

void register_cuda_embedding() {
  ops::kernels<Embedding>().add("cuda", {.hardware = hardware::kGpu,
                                         .accepts = refuse_float16<Embedding::Signature>,
                                         .forward = forward,
                                         .backward = backward});
}

}  // namespace temper::backends
