#include "backends/cublaslt/softmax_row.h"

namespace temper::backends {
namespace {

// Of a row of a part of the vocabulary: the largest logit, the sum of all exp(logit - largest), and the
// target's logit, or 0 where it is in another part.
constexpr int kNumbers = 3;

// One block a row.
template <class T, int N>
__global__ void __launch_bounds__(kRowThreads)
    measure_row(const __grid_constant__ SoftmaxArguments<T> a, int64_t first_target, float* measured) {
  __shared__ Running of_warps[kRowThreads / 32];
  const int64_t row = blockIdx.x, target = a.targets[row] - first_target;
  if (a.targets[row] < 0) return;
  const T* x = a.logits + row * a.vocab;
  Running mine = nothing();
  for_each_pack<T, N>(x, 0, a.vocab, [&](const Pack<T, N>& pack, int64_t) { add_pack(mine, pack); });
  mine = merge_warp(mine);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = mine;
  __syncthreads();
  const Running all = merge(of_warps, kRowThreads / 32);
  if (threadIdx.x != 0) return;
  float* out = measured + row * kNumbers;
  out[0] = all.largest;
  out[1] = all.sum;
  out[2] = target >= 0 && target < a.vocab ? widen(x[target]) : 0.f;
}

// One block a row.
template <class T, int N>
__global__ void __launch_bounds__(kRowThreads)
    finish_row(const __grid_constant__ SoftmaxArguments<T> a, int64_t first_target, const float* all, int ranks) {
  const int64_t row = blockIdx.x, rows = gridDim.x, target = a.targets[row] - first_target;
  T* x = a.logits + row * a.vocab;
  if (a.targets[row] < 0) {
    if (a.differentiate) store_zeros<T, N>(x, a.vocab);
    return;
  }
  Running joined = nothing();
  float chosen = 0;
  for (int rank = 0; rank < ranks; ++rank) joined.largest = fmaxf(joined.largest, all[(rank * rows + row) * kNumbers]);
  for (int rank = 0; rank < ranks; ++rank) {
    const float* part = all + (rank * rows + row) * kNumbers;
    joined.sum += Running{part[0], part[1]}.rescaled_to(joined.largest);
    chosen += part[2];
  }
  const SeenRow seen(a, joined);
  if (threadIdx.x == 0) seen.store_losses(a, row, chosen);
  if (!a.differentiate) return;
  const float scale = a.scale_of(row);
  for_each_pack<T, N>(x, 0, a.vocab, [&](Pack<T, N> pack, int64_t at) {
    seen.differentiate(pack, scale);
    if (target >= at && target < at + N)
      for (int k = 0; k < N; ++k)
        if (at + k == target) pack.values[k] = seen.of_target<T>(chosen, scale);
    store_pack(x + at, pack);
  });
}

// Calls launch(type, lanes of a pack).
template <class Launch>
void visit_packs(const SoftmaxRows& op, const Launch& launch) {
  visit_device_float(op.logits.dtype(), [&]<class T>() {
    if (op.logits.dim(1) % kLanes<T> == 0)
      launch.template operator()<T, kLanes<T>>();
    else
      launch.template operator()<T, 1>();
  });
}

}  // namespace

void measure_rows(const SoftmaxRows& op, int64_t first_target, const Tensor& measured) {
  if (op.logits.dim(0) == 0) return;
  measured.fill_zero();  // rows without a target travel with the others
  visit_packs(op, [&]<class T, int N>() {
    measure_row<T, N><<<static_cast<unsigned>(op.logits.dim(0)), kRowThreads, 0, device::stream(op.logits.device())>>>(
        arguments_of<T>(op), first_target, measured.data<float>());
  });
  device::check_launch("measure_rows");
}

void finish_rows(const SoftmaxRows& op, int64_t first_target, const Tensor& all) {
  if (op.logits.dim(0) == 0) return;
  visit_packs(op, [&]<class T, int N>() {
    finish_row<T, N><<<static_cast<unsigned>(op.logits.dim(0)), kRowThreads, 0, device::stream(op.logits.device())>>>(
        arguments_of<T>(op), first_target, all.data<float>(), static_cast<int>(all.numel() / (op.logits.dim(0) * kNumbers)));
  });
  device::check_launch("finish_rows");
}

}  // namespace temper::backends
