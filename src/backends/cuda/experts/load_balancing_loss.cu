// Counts and sums of all routers are added up expert by expert; one block makes the loss, or its gradient, of them.
#include "backends/gpu/device_code.h"
#include "ops/load_balancing_loss/load_balancing_loss.h"

namespace temper::backends {
namespace {

using ops::LoadBalancingLoss;

constexpr int kAtOnce = 128;  // routers of a launch: their addresses are arguments of the kernel
constexpr int kFinishing = 1024;

struct Routers {
  const int* counts[kAtOnce];
  const float* sums[kAtOnce];
  int number;
};

// totals [2, experts]: how often each was chosen, and what its sums are together.
__global__ void add_routers(Routers routers, int experts, bool first, double* totals) {
  const int e = blockIdx.x * blockDim.x + threadIdx.x;
  if (e >= experts) return;
  double chosen = first ? 0 : totals[e], sum = first ? 0 : totals[experts + e];
#pragma unroll 8
  for (int r = 0; r < routers.number; ++r) {
    chosen += routers.counts[r][e];
    sum += routers.sums[r][e];
  }
  totals[e] = chosen;
  totals[experts + e] = sum;
}

// The sum over the block, in every thread.
__device__ inline double sum_of_block(double value) {
  __shared__ double shared[kFinishing];
  __syncthreads();
  shared[threadIdx.x] = value;
  for (unsigned half = kFinishing / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
  }
  __syncthreads();
  return shared[0];
}

struct Scale {
  double factor;  // times experts, over the number of routers
  const float* inverse_tokens;
  int top_k;
};

// With dy: out [experts + 1], the gradient of every router's sums; otherwise out [1], the loss.
__global__ void __launch_bounds__(kFinishing)
    finish(const double* totals, int experts, Scale scale, const float* dy, float* out) {
  double all = 0;
  for (int e = threadIdx.x; e < experts; e += kFinishing) all += totals[e];
  all = sum_of_block(all);
  const double each = all > 0 ? scale.factor * *scale.inverse_tokens * scale.top_k / all : 0;
  if (dy != nullptr) {
    for (int e = threadIdx.x; e < experts; e += kFinishing) out[e] = static_cast<float>(*dy * each * totals[e]);
    if (threadIdx.x == 0) out[experts] = 0;
    return;
  }
  double loss = 0;
  for (int e = threadIdx.x; e < experts; e += kFinishing) loss += totals[e] * totals[experts + e];
  loss = sum_of_block(loss);
  if (threadIdx.x == 0) *out = static_cast<float>(each * loss);
}

void run(const LoadBalancingLoss& op, const float* dy, const Tensor& out) {
  const Device device = out.device();
  const cudaStream_t stream = device::stream(device);
  const auto experts = static_cast<int>(op.counts.front().dim(0) - 1);
  const Tensor totals = Tensor::empty({2, experts}, DType::kI64, MemoryTag::kWorkspace, device);  // of doubles
  auto* const at = static_cast<double*>(totals.raw());
  for (size_t first = 0; first < op.counts.size(); first += kAtOnce) {
    Routers routers{};
    routers.number = static_cast<int>(std::min<size_t>(kAtOnce, op.counts.size() - first));
    for (int r = 0; r < routers.number; ++r) {
      routers.counts[r] = op.counts[first + static_cast<size_t>(r)].data<int32_t>();
      routers.sums[r] = op.sums[first + static_cast<size_t>(r)].data<float>();
    }
    if (experts > 0)
      add_routers<<<static_cast<unsigned>((experts + 31) / 32), 32, 0, stream>>>(routers, experts, first == 0, at);
  }
  const Tensor inverse_tokens = from_host(op.inverse_tokens, device);
  const Scale scale{static_cast<double>(op.factor) * experts / static_cast<double>(op.sums.size()),
                    inverse_tokens.data<float>(), static_cast<int>(op.top_k)};
  finish<<<1, kFinishing, 0, stream>>>(at, experts, scale, dy, out.data<float>());
  device::check_launch("load_balancing_loss");
}

Tensor forward(const LoadBalancingLoss& op) {
  const Tensor loss = ops::outline<LoadBalancingLoss>().forward(op);
  run(op, nullptr, loss);
  return loss;
}

Tensor backward(const LoadBalancingLoss& op, const Tensor& dy) {
  const Tensor gradient = ops::outline<LoadBalancingLoss>().backward(op, dy);
  run(op, dy.data<float>(), gradient);
  return gradient;
}

ops::Refusal accepts(const LoadBalancingLoss::Signature&, const HardwareFacts&) { return std::nullopt; }

}  // namespace

void register_cuda_load_balancing_loss() {
  ops::kernels<LoadBalancingLoss>().add(
      "cuda",
      {.hardware = hardware::kGpu, .accepts = accepts, .forward = forward, .backward = backward, .repeats = true});
}

}  // namespace temper::backends
