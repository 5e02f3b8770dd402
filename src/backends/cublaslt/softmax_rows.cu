#include "backends/cublaslt/softmax_rows.h"

#include "backends/cublaslt/softmax_row.h"

namespace temper::backends {
namespace {

// One block a row. The first `held` logits stay in shared memory between the two passes.
template <class T, int N>
__global__ void __launch_bounds__(kRowThreads, 2)
    softmax_row(const __grid_constant__ SoftmaxArguments<T> a, int64_t held_count) {
  extern __shared__ int4 held_memory[];
  __shared__ Running of_warps[kRowThreads / 32];
  T* const held = reinterpret_cast<T*>(held_memory);
  const int64_t row = blockIdx.x;
  T* x = a.logits + row * a.vocab;
  const int target = a.targets[row];
  if (target < 0) {
    if (a.differentiate) store_zeros<T, N>(x, a.vocab);
    return;
  }
  const float scale = a.scale_of(row);
  const float chosen = widen(x[target]);  // before anyone overwrites it
  Running mine = nothing();
  for_each_pack<T, N>(x, 0, held_count, [&](const Pack<T, N>& pack, int64_t at) {
    store_pack(held + at, pack);
    add_pack(mine, pack);
  });
  for_each_pack<T, N>(x, held_count, a.vocab, [&](const Pack<T, N>& pack, int64_t) { add_pack(mine, pack); });
  mine = merge_warp(mine);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = mine;
  __syncthreads();
  const SeenRow seen(a, merge(of_warps, kRowThreads / 32));
  if (threadIdx.x == 0) seen.store_losses(a, row, chosen);
  if (!a.differentiate) return;
  const auto differentiate = [&](Pack<T, N> pack, int64_t at) {
    seen.differentiate(pack, scale);
    if (target >= at && target < at + N)
      for (int k = 0; k < N; ++k)
        if (at + k == target) pack.values[k] = seen.of_target<T>(chosen, scale);
    store_pack(x + at, pack);
  };
  for_each_pack<T, N>(x, held_count, a.vocab, differentiate);
  for_each_pack<T, N>(held, 0, held_count, differentiate);
}

template <class T, int N>
void launch(const SoftmaxRows& op) {
  constexpr int64_t kHeldBytes = 104 << 10;  // two blocks share a multiprocessor: one reads while the other writes
  const cudaStream_t stream = device::stream(op.logits.device());
  const int64_t vocab = op.logits.dim(1), room = scratch_bytes(op.logits.device()) - (2 << 10);
  const int64_t step = int64_t{kRowThreads} * N;
  const int64_t held = std::min(vocab, std::min(kHeldBytes, room) / size_of(op.logits.dtype()) / step * step);
  const auto bytes = static_cast<size_t>(held * size_of(op.logits.dtype()));
  allow_scratch(softmax_row<T, N>, bytes);
  softmax_row<T, N><<<static_cast<unsigned>(op.logits.dim(0)), kRowThreads, bytes, stream>>>(arguments_of<T>(op),
                                                                                             held);
  device::check_launch("softmax_rows");
}

constexpr int kSumThreads = 1024;

// Of all values times their factors (null: 1), in thread 0.
__device__ double sum_of(const float* values, const float* factors, int64_t count, double* shared) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += kSumThreads)
    sum += factors == nullptr ? double{values[i]} : double{values[i]} * factors[i];
  __syncthreads();
  shared[threadIdx.x] = sum;
  for (unsigned half = kSumThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
  }
  return threadIdx.x == 0 ? shared[0] : 0;  // which it may still be writing when the others come here
}

__global__ void sum_block(const float* nll, const float* z, const float* factors, int64_t count,
                          const float* scale, float* loss, float* z_loss) {
  __shared__ double shared[kSumThreads];
  const double extra = z == nullptr ? 0 : sum_of(z, factors, count, shared);
  const double sum = sum_of(nll, factors, count, shared);
  if (threadIdx.x != 0) return;
  *loss = static_cast<float>((sum + extra) * *scale);
  if (z != nullptr) *z_loss = static_cast<float>(extra * *scale);
}

template <class T>
__global__ void move_rows(T* to, const T* from, const int* places, int64_t width, bool scatter) {
  const int64_t row = blockIdx.x, place = places[row];
  T* out = to + (scatter ? place : row) * width;
  const T* in = from + (scatter ? row : place) * width;
  for (int64_t i = threadIdx.x; i < width; i += blockDim.x) out[i] = in[i];
}

void move(const Tensor& to, const Tensor& from, const Tensor& places, bool scatter) {
  if (places.numel() == 0) return;
  const auto rows = static_cast<unsigned>(places.numel());
  const cudaStream_t stream = device::stream(to.device());
  const int* at = places.data<int32_t>();
  if (size_of(to.dtype()) == 2)
    move_rows<<<rows, kThreads, 0, stream>>>(static_cast<uint16_t*>(to.raw()),
                                             static_cast<const uint16_t*>(from.raw()), at, to.dim(1), scatter);
  else
    move_rows<<<rows, kThreads, 0, stream>>>(static_cast<uint32_t*>(to.raw()),
                                             static_cast<const uint32_t*>(from.raw()), at, to.dim(1), scatter);
  device::check_launch("moving rows");
}

}  // namespace

void softmax_rows(const SoftmaxRows& op) {
  if (op.logits.dim(0) == 0 || softmax_by_clusters(op)) return;
  visit_device_float(op.logits.dtype(), [&]<class T>() {
    const bool whole_packs = op.logits.dim(1) % kLanes<T> == 0;
    whole_packs ? launch<T, kLanes<T>>(op) : launch<T, 1>(op);
  });
}

void sum_losses(const LossSums& op) {
  const bool z = op.z.defined();
  sum_block<<<1, kSumThreads, 0, device::stream(op.nll.device())>>>(
      op.nll.data<float>(), z ? op.z.data<float>() : nullptr,
      op.token_factors.defined() ? op.token_factors.data<float>() : nullptr, op.nll.numel(), op.scale.data<float>(),
      op.loss.data<float>(), z ? op.z_loss.data<float>() : nullptr);
  device::check_launch("sum_losses");
}

void gather_rows(const Tensor& to, const Tensor& from, const Tensor& places) { move(to, from, places, false); }
void scatter_rows(const Tensor& to, const Tensor& from, const Tensor& places) { move(to, from, places, true); }

}  // namespace temper::backends
