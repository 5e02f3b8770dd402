#include "backends/cuda/pieces.h"
#include "backends/gpu/device_code.h"
#include "ops/global_norm/global_norm.h"

namespace temper::backends {
namespace {

using ops::GlobalNorm;

struct Entry {
  const void* grad;
  int64_t elements, first_piece;
};

__device__ double block_sum_double(double value) {
  __shared__ double shared[1024];
  shared[threadIdx.x] = value;
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
  }
  return shared[0];
}

template <class T>
__global__ void sum_pieces(const Entry* entries, int count, double* sums) {
  const Entry& entry = entry_of(entries, count, blockIdx.x);
  const int64_t begin = (blockIdx.x - entry.first_piece) * kPiece;
  const int64_t end = min(begin + kPiece, entry.elements);
  const T* grad = static_cast<const T*>(entry.grad);
  double sum = 0;
  const bool aligned = reinterpret_cast<uintptr_t>(grad) % 16 == 0;
  const int64_t whole = aligned ? begin + (end - begin) / kLanes<T> * kLanes<T> : begin;
  for (int64_t i = begin + int64_t{threadIdx.x} * kLanes<T>; i < whole;
       i += int64_t{blockDim.x} * kLanes<T>) {
    const Pack<T, kLanes<T>> pack = load_pack<T, kLanes<T>>(grad + i);
    for (int k = 0; k < kLanes<T>; ++k) {
      const double g = widen(pack.values[k]);
      sum += g * g;
    }
  }
  for (int64_t i = whole + threadIdx.x; i < end; i += blockDim.x)
    sum += double{widen(grad[i])} * widen(grad[i]);
  sum = block_sum_double(sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

__global__ void finish_norm(const double* sums, int64_t count, float* norm, bool in_two) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) sum += sums[i];
  sum = block_sum_double(sum);
  if (threadIdx.x != 0) return;
  const double root = sqrt(sum);
  norm[0] = in_two ? __double2float_rd(root) : static_cast<float>(root);
  if (in_two)
    norm[1] = isfinite(norm[0]) ? static_cast<float>(sqrt(fmax(0.0, sum - double{norm[0]} * norm[0]))) : 0;
}

// One sum of each piece, as doubles.
Tensor empty_sums(const GlobalNorm& op) {
  int64_t pieces = 0;
  for (const Tensor& grad : op.grads) pieces += pieces_of(grad.numel());
  return Tensor::empty({pieces}, DType::kI64, MemoryTag::kWorkspace, op.device);
}

Tensor forward(const GlobalNorm& op) {
  std::vector<Entry> entries;
  int64_t pieces = 0;
  for (const Tensor& grad : op.grads) {
    if (grad.numel() == 0) continue;
    entries.push_back({grad.raw(), grad.numel(), pieces});
    pieces += pieces_of(grad.numel());
  }
  const Tensor norm = Tensor::zeros({op.in_two ? 2 : 1}, DType::kF32, MemoryTag::kActivations, op.device);
  if (pieces == 0) return norm;
  const Tensor table = upload("global_norm", entries, op.device);
  const Tensor sums = empty_sums(op);
  const cudaStream_t stream = device::stream(op.device);
  visit_wide_or_brain(op.grads.front().dtype(), [&]<class T>() {
    sum_pieces<T><<<static_cast<unsigned>(pieces), kThreads, 0, stream>>>(
        static_cast<const Entry*>(table.raw()), static_cast<int>(entries.size()),
        static_cast<double*>(sums.raw()));
  });
  finish_norm<<<1, 1024, 0, stream>>>(static_cast<const double*>(sums.raw()), pieces, norm.data<float>(),
                                      op.in_two);
  device::check_launch("global_norm");
  return norm;
}

Tensor outline_forward(const GlobalNorm& op) {
  const Tensor sums = empty_sums(op);
  return ops::outline<GlobalNorm>().forward(op);
}

ops::Refusal accepts(const GlobalNorm::Signature&, const HardwareFacts&) { return std::nullopt; }

}  // namespace

void register_cuda_global_norm() {
  ops::kernels<GlobalNorm>().add("cuda", {.hardware = hardware::kGpu,
                                          .accepts = accepts,
                                          .forward = forward,
                                          .repeats = true,
                                          .outline = {.forward = outline_forward}});
}

}  // namespace temper::backends
