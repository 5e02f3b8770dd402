#include "backends/cuda/cuda.h"
#include "backends/gpu.h"

namespace temper::backends {
namespace {

using ops::Embedding;

template <class T>
__global__ void look_up(const T* table, const int* ids, T* y, int64_t hidden) {
  const T* from = table + int64_t{ids[blockIdx.x]} * hidden;
  T* to = y + int64_t{blockIdx.x} * hidden;
  for (int64_t i = threadIdx.x; i < hidden; i += blockDim.x) to[i] = from[i];
}

// One block a token. The block of an id's first occurrence sums all of them, in the order of the tokens; the
// others leave. Looking through the ids costs little beside the rows.
template <class T, class G>
__global__ void sum_rows(const T* dy, const int* ids, int64_t tokens, int64_t hidden, G* grad) {
  __shared__ unsigned found[kThreads / 32];
  const int64_t mine = blockIdx.x;
  const int id = ids[mine];
  bool before = false;
  for (int64_t t = threadIdx.x; t < mine; t += blockDim.x) before = before || ids[t] == id;
  if (__syncthreads_or(before)) return;
  G* out = grad + int64_t{id} * hidden;
  for (int64_t column = 0; column < hidden; column += blockDim.x) {
    const int64_t i = column + threadIdx.x;
    float sum = i < hidden ? widen(out[i]) : 0.f;
    for (int64_t begin = mine; begin < tokens; begin += blockDim.x) {
      const int64_t t = begin + threadIdx.x;
      const unsigned votes = __ballot_sync(0xffffffffu, t < tokens && ids[t] == id);
      __syncthreads();
      if (threadIdx.x % 32 == 0) found[threadIdx.x / 32] = votes;
      __syncthreads();
      for (int warp = 0; warp < kThreads / 32; ++warp)
        for (unsigned rest = found[warp]; rest != 0; rest &= rest - 1)
          if (i < hidden) sum += widen(dy[(begin + warp * 32 + __ffs(rest) - 1) * hidden + i]);
    }
    if (i < hidden) out[i] = narrow<G>(sum);
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
        static_cast<const T*>(op.table.raw()), ids.data<int32_t>(), static_cast<T*>(y.raw()), hidden);
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
          static_cast<const T*>(dy.raw()), ids.data<int32_t>(), ids.numel(), dy.dim(1),
          static_cast<G*>(table.buffer.raw()));
    });
  });
  device::check_launch("embedding backward");
}

}  // namespace

ops::Kernel<Embedding> cuda_embedding_kernel() {
  return {.hardware = hardware::kGpu,
          .accepts = refuse_float16<Embedding::Signature>,
          .forward = forward,
          .backward = backward};
}

}  // namespace temper::backends
