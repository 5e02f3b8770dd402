// One launch for a matrix or for all experts: every byte is read and written once.
#include "backends/cuda/cuda.h"
#include "backends/cuda/group_places.h"
#include "backends/gpu/fake_elements.h"

namespace temper::backends {
namespace {

using ops::FakeQuantize;
using quant::Scaling;

template <class T, class Divisor, bool kInteger>
struct Arguments {
  StridedRows<T> x;
  T* y;
  const float* amax;  // null: the format needs none
  GroupPlaces<Divisor> places;
  typename Divisor::Index packs;
  quant::Format format;
  Rounding<kInteger> round;
};

// Measured on one H200.
constexpr int threads_of(Scaling scaling) { return finds_blocks(scaling) ? kThreads : 2 * kThreads; }

template <class T, int N, class Divisor, Scaling kScaling, bool kInteger>
__global__ void __launch_bounds__(threads_of(kScaling))
    fake_packs(const __grid_constant__ Arguments<T, Divisor, kInteger> a) {
  using Index = typename Divisor::Index;
  constexpr bool kBlocks = finds_blocks(kScaling);
  constexpr int kOwnThreads = threads_of(kScaling);
  const int lanes = kBlocks ? a.format.block / N : 1;
  Faking<kScaling, kInteger> faking;
  bool taken = false;
  Index last = 0;
  if constexpr (kScaling == Scaling::kPowersOfTwo) faking.take(a.format, 0);
  for_runs<kOwnThreads>(a.packs, [&](Index first) {
    Pack<T, N> packs[kPacksAhead] = {};
#pragma unroll
    for (int i = 0; i < kPacksAhead; ++i) {
      const Index pack = first + i * kOwnThreads;
      if (pack < a.packs) packs[i] = load_pack<T, N>(a.x.template at<N>(a.places, pack));
    }
#pragma unroll
    for (int i = 0; i < kPacksAhead; ++i) {
      const Index pack = first + i * kOwnThreads;
      float own = 0;
      if constexpr (kBlocks) own = block_amax(packs[i], lanes);
      if (pack >= a.packs) continue;
      if constexpr (kScaling != Scaling::kPowersOfTwo) {
        const Index group = a.places.group(pack);
        if (!taken || group != last) faking.take(a.format, a.amax[group]);
        taken = true;
        last = group;
      }
      store_pack(a.y + int64_t{pack} * N, faked(faking, a.round, own, packs[i]));
    }
  });
}

template <class T, class Grad, class Divisor>
struct ClipArguments {
  StridedRows<T> x;
  Grad* grad;
  const float* amax;
  GroupPlaces<Divisor> places;
  typename Divisor::Index packs;
};

// Reads x, and of the gradient nothing: what is clipped is set to 0.
template <class T, class Grad, int N, class Divisor>
__global__ void __launch_bounds__(kThreads)
    clip_packs(const __grid_constant__ ClipArguments<T, Grad, Divisor> a) {
  using Index = typename Divisor::Index;
  for_runs(a.packs, [&](Index first) {
    Pack<T, N> x[kPacksAhead] = {};
#pragma unroll
    for (int i = 0; i < kPacksAhead; ++i) {
      const Index pack = first + i * kThreads;
      if (pack < a.packs) x[i] = load_pack<T, N>(a.x.template at<N>(a.places, pack));
    }
#pragma unroll
    for (int i = 0; i < kPacksAhead; ++i) {
      const Index pack = first + i * kThreads;
      if (pack >= a.packs) continue;
      const float amax = a.amax[a.places.group(pack)];
      if (block_amax(x[i], 1) <= amax) continue;
#pragma unroll
      for (int k = 0; k < N; ++k)
        if (!(fabsf(widen(x[i].values[k])) <= amax)) a.grad[int64_t{pack} * N + k] = narrow<Grad>(0);
    }
  });
}

quant::Groups groups_in(const FakeQuantize& op) {
  Shape one = op.x.shape();
  for (int d = 0; d < one.ndim(); ++d) one[d] = 1;
  return quant::groups_of(FakeQuantize::kName, op.x.shape(), op.amax.defined() ? op.amax.shape() : one);
}

Tensor forward(const FakeQuantize& op) {
  const Tensor y = Tensor::empty(op.x.shape(), op.x.dtype(), MemoryTag::kActivations, op.x.device());
  const quant::Groups groups = groups_in(op);
  visit_device_float(op.x.dtype(), [&]<class T>() {
    const StridedRows<T> x(op.x);
    visit_packs<kLanes<T>>(groups, x.has_packs(kLanes<T>), [&]<int N, class Divisor>() {
      const int64_t packs = y.numel() / N;
      visit_scaling(op.format, [&]<Scaling kScaling, bool kInteger>() {
        const Arguments<T, Divisor, kInteger> arguments{x,
                                                        static_cast<T*>(y.raw()),
                                                        op.amax.defined() ? op.amax.data<float>() : nullptr,
                                                        GroupPlaces<Divisor>(groups, N),
                                                        static_cast<typename Divisor::Index>(packs),
                                                        op.format,
                                                        Rounding<kInteger>(op.format.element)};
        constexpr int kOwnThreads = threads_of(kScaling);
        fake_packs<T, N, Divisor, kScaling, kInteger>
            <<<one_block_for_each_run<kOwnThreads>(packs), kOwnThreads, 0, device::stream(y.device())>>>(
                arguments);
      });
    });
  });
  device::check_launch("fake_quantize");
  return y;
}

template <class T, class Grad>
void clip(const FakeQuantize& op, const Tensor& grad) {
  const quant::Groups groups = groups_in(op);
  const StridedRows<T> x(op.x);
  visit_packs<kLanes<T>>(groups, x.has_packs(kLanes<T>), [&]<int N, class Divisor>() {
    const int64_t packs = grad.numel() / N;
    const ClipArguments<T, Grad, Divisor> arguments{x, static_cast<Grad*>(grad.raw()), op.amax.data<float>(),
                                                    GroupPlaces<Divisor>(groups, N),
                                                    static_cast<typename Divisor::Index>(packs)};
    clip_packs<T, Grad, N, Divisor>
        <<<blocks_for_runs(packs), kThreads, 0, device::stream(grad.device())>>>(arguments);
  });
}

// A weight's gradient may be float32 where the weight is not.
void backward(const FakeQuantize& op, const Tensor& grad) {
  visit_device_float(op.x.dtype(), [&]<class T>() {
    grad.dtype() == op.x.dtype() ? clip<T, T>(op, grad) : clip<T, float>(op, grad);
  });
  device::check_launch("fake_quantize backward");
}

ops::Refusal accepts(const FakeQuantize::Signature& signature, const HardwareFacts&) {
  return refuse_format(signature.format);
}

}  // namespace

ops::Kernel<FakeQuantize> cuda_fake_quantize_kernel() {
  return {.hardware = hardware::kGpu, .accepts = accepts, .forward = forward, .backward = backward};
}

}  // namespace temper::backends
