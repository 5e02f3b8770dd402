#include "backends/cublaslt/softmax_rows.h"

#include "backends/gpu.h"

namespace temper::backends {
namespace {

constexpr int kRowThreads = 512;
constexpr int kAhead = 4;  // packs a thread loads before it uses the first
constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

// Shared memory that one block may have.
int64_t scratch_bytes(Device device) {
  int bytes = 0;
  device::check(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device.index),
                "cudaDeviceGetAttribute");
  return bytes;
}

// Running maximum and sum of powers of two, of logits scaled by log2(e).
struct Running {
  float largest = -INFINITY, sum = 0;
};

__device__ Running merge(Running a, Running b) {
  const float largest = fmaxf(a.largest, b.largest);
  if (largest == -INFINITY) return a;
  return {largest, a.sum * exp2f(a.largest - largest) + b.sum * exp2f(b.largest - largest)};
}

__device__ Running merge_warp(Running mine) {
  for (int lane = 16; lane > 0; lane /= 2) {
    const Running other{__shfl_xor_sync(0xffffffffu, mine.largest, lane),
                        __shfl_xor_sync(0xffffffffu, mine.sum, lane)};
    mine = merge(mine, other);
  }
  return mine;
}

// The largest of a pack first: one rescaling for all of it.
template <class T, int N>
__device__ void add_pack(Running& mine, const Pack<T, N>& pack) {
  float values[N], largest = mine.largest;
  for (int i = 0; i < N; ++i) {
    values[i] = __fmul_rn(widen(pack.values[i]), kLog2E);  // rounded as `chosen`: a vocabulary of one has no loss
    largest = fmaxf(largest, values[i]);
  }
  if (largest == -INFINITY) return;
  float sum = mine.sum * exp2f(mine.largest - largest);
  for (int i = 0; i < N; ++i) sum += exp2f(values[i] - largest);
  mine = {largest, sum};
}

template <class T>
struct Row {
  T* logits;
  const int* targets;
  const int* places;
  int64_t first;
  float* nll;
  float* z;  // null without z_loss
  int64_t vocab, held;  // the first `held` logits of a row stay in shared memory between the two passes
  const float* scale;
  float z_loss;
  bool differentiate;
};

// Calls body(pack, at) for every pack of a row from `begin` to `end`, several loads ahead.
template <class T, int N, class Body>
__device__ void for_each_pack(const T* from, int64_t begin, int64_t end, Body body) {
  constexpr int64_t kStep = int64_t{kRowThreads} * N;
  int64_t i = begin + int64_t{threadIdx.x} * N;
  for (; i + (kAhead - 1) * kStep < end; i += kAhead * kStep) {
    Pack<T, N> packs[kAhead];
    for (int p = 0; p < kAhead; ++p) packs[p] = load_pack<T, N>(from + i + p * kStep);
    for (int p = 0; p < kAhead; ++p) body(packs[p], i + p * kStep);
  }
  for (; i < end; i += kStep) body(load_pack<T, N>(from + i), i);
}

template <class T, int N>
__global__ void __launch_bounds__(kRowThreads, 2) softmax_row(Row<T> a) {
  extern __shared__ int4 held_memory[];
  __shared__ float shared[2 * 32];
  T* const held = reinterpret_cast<T*>(held_memory);
  const int64_t row = blockIdx.x;
  T* x = a.logits + row * a.vocab;
  const int target = a.targets[row];
  if (target < 0) {  // it fills up the rows of a product
    const Pack<T, N> none{};
    if (a.differentiate)
      for (int64_t i = int64_t{threadIdx.x} * N; i < a.vocab; i += int64_t{kRowThreads} * N) store_pack(x + i, none);
    return;
  }
  const float scale = *a.scale;
  // Read before anyone overwrites the row.
  const float chosen = __fmul_rn(widen(x[target]), kLog2E);
  Running mine;
  for_each_pack<T, N>(x, 0, a.held, [&](const Pack<T, N>& pack, int64_t at) {
    store_pack(held + at, pack);
    add_pack(mine, pack);
  });
  for_each_pack<T, N>(x, a.held, a.vocab, [&](const Pack<T, N>& pack, int64_t) { add_pack(mine, pack); });
  mine = merge_warp(mine);
  if (threadIdx.x % 32 == 0) {
    shared[threadIdx.x / 32] = mine.largest;
    shared[32 + threadIdx.x / 32] = mine.sum;
  }
  __syncthreads();
  const unsigned other = threadIdx.x % (kRowThreads / 32);
  mine = merge_warp(threadIdx.x % 32 < kRowThreads / 32 ? Running{shared[other], shared[32 + other]} : Running{});
  const float lse = mine.largest + log2f(mine.sum);
  const float z = a.z_loss * lse * kLn2;
  if (threadIdx.x == 0) {
    const int64_t place = a.places == nullptr ? a.first + row : a.places[row];
    a.nll[place] = (lse - chosen) * kLn2;
    if (a.z != nullptr) a.z[place] = z * lse * kLn2;
  }
  if (!a.differentiate) return;
  const float normalized = 1 + 2 * z;  // the gradient of lse is p
  const auto differentiate = [&](Pack<T, N> pack, int64_t at) {
    for (int k = 0; k < N; ++k) {
      const float p = exp2f(widen(pack.values[k]) * kLog2E - lse) * normalized;
      pack.values[k] = narrow<T>((at + k == target ? p - 1 : p) * scale);
    }
    store_pack(x + at, pack);
  };
  for_each_pack<T, N>(x, a.held, a.vocab, differentiate);
  for_each_pack<T, N>(held, 0, a.held, differentiate);
}

template <class T, int N>
void launch(const SoftmaxRows& op) {
  constexpr int64_t kHeldBytes = 104 << 10;  // two blocks share a multiprocessor: one reads while the other writes
  const cudaStream_t stream = device::stream(op.logits.device());
  const int64_t vocab = op.logits.dim(1), room = scratch_bytes(op.logits.device()) - (2 << 10);
  const int64_t step = int64_t{kRowThreads} * N;
  const int64_t held = std::min(vocab, std::min(kHeldBytes, room) / size_of(op.logits.dtype()) / step * step);
  const auto bytes = static_cast<size_t>(held * size_of(op.logits.dtype()));
  device::check(cudaFuncSetAttribute(softmax_row<T, N>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(bytes)),
                "cudaFuncSetAttribute");
  const Row<T> arguments{static_cast<T*>(op.logits.raw()),
                         op.targets.data<int32_t>(),
                         op.places.defined() ? op.places.data<int32_t>() : nullptr,
                         op.first,
                         op.nll.data<float>(),
                         op.z.defined() ? op.z.data<float>() : nullptr,
                         vocab,
                         held,
                         op.scale.data<float>(),
                         op.z_loss,
                         op.differentiate};
  softmax_row<T, N><<<static_cast<unsigned>(op.logits.dim(0)), kRowThreads, bytes, stream>>>(arguments);
  device::check_launch("softmax_rows");
}

constexpr int kSumThreads = 1024;

// Of all values, in thread 0.
__device__ double sum_of(const float* values, int64_t count, double* shared) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += kSumThreads) sum += values[i];
  __syncthreads();
  shared[threadIdx.x] = sum;
  for (unsigned half = kSumThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
  }
  return shared[0];
}

__global__ void sum_block(const float* nll, const float* z, int64_t count, const float* scale, float* loss,
                          float* z_loss) {
  __shared__ double shared[kSumThreads];
  const double extra = z == nullptr ? 0 : sum_of(z, count, shared);
  const double sum = sum_of(nll, count, shared);
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
  if (op.logits.dim(0) == 0) return;
  visit_device_float(op.logits.dtype(), [&]<class T>() {
    const bool whole_packs = op.logits.dim(1) % kLanes<T> == 0;
    whole_packs ? launch<T, kLanes<T>>(op) : launch<T, 1>(op);
  });
}

void sum_losses(const LossSums& op) {
  const bool z = op.z.defined();
  sum_block<<<1, kSumThreads, 0, device::stream(op.nll.device())>>>(
      op.nll.data<float>(), z ? op.z.data<float>() : nullptr, op.nll.numel(), op.scale.data<float>(), op.loss.data<float>(),
      z ? op.z_loss.data<float>() : nullptr);
  device::check_launch("sum_losses");
}

void gather_rows(const Tensor& to, const Tensor& from, const Tensor& places) { move(to, from, places, false); }
void scatter_rows(const Tensor& to, const Tensor& from, const Tensor& places) { move(to, from, places, true); }

}  // namespace temper::backends
