// One launch for a matrix or for all experts: every byte is read and written once.
#include "backends/cuda/experts/group_places.h"
#include "backends/gpu/fake_ranges.h"
#include "ops/fake_quantize/fake_quantize.h"

namespace temper::backends {
namespace {

using ops::FakeQuantize;
using quant::Scaling;

template <class T, class Divisor, bool kInteger>
struct Arguments {
  StridedRows<T> x;
  T* y;
  const float* amax;  // null: the format needs none
  const float* low;   // null: it has no zero points
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
        if (!taken || group != last) {
          if constexpr (kScaling == Scaling::kZeroPoints)
            faking.take_range(a.format.element, a.low[group], a.amax[group]);
          else
            faking.take(a.format, a.amax[group]);
        }
        taken = true;
        last = group;
      }
      store_pack(a.y + int64_t{pack} * N, faked(faking, a.round, own, packs[i]));
    }
  });
}

// x times the factors from there on; packs are as aligned as their elements' vectors of at most 16 bytes.
template <int N>
__device__ void multiply(float (&x)[N], const float* factors) {
  constexpr int kPart = N % 4 == 0 ? 4 : 1;
#pragma unroll
  for (int k = 0; k < N; k += kPart) {
    const Pack<float, kPart> part = load_pack<float, kPart>(factors + k);
#pragma unroll
    for (int j = 0; j < kPart; ++j) x[k + j] = __fmul_rn(x[k + j], part.values[j]);
  }
}

// Of all experts' columns; null: none.
struct Factors {
  explicit Factors(const ops::FakeQuantize& op) : columns(op.x.dim(-1)) {
    if (!op.factors.by.defined()) return;
    by = op.factors.by.data<float>();
    back = op.factors.back.data<float>();
  }
  bool have_packs() const {
    const auto at = reinterpret_cast<uintptr_t>(by) | reinterpret_cast<uintptr_t>(back);
    return at % sizeof(Pack<float, 4>) == 0;
  }
  // Of a pack of N elements, from there on.
  template <int N, class Place>
  __device__ int64_t first(const Place& at) const {
    return int64_t{at.expert} * columns + int64_t{at.pack} * N;
  }

  const float *by = nullptr, *back = nullptr;
  int64_t columns;
};

template <class T, class Divisor, bool kInteger>
struct WideArguments {
  Arguments<T, Divisor, kInteger> first;
  Factors factors;
  const float* second_amax;  // null: rounded once
  GroupPlaces<Divisor> second_places;
  quant::Format second_format;
  Rounding<false> second_round;
};

// Between factors of columns and in float32 until the end, once or twice. A thread has one pack.
template <class T, int N, class Divisor, Scaling kScaling, bool kInteger>
__global__ void __launch_bounds__(kThreads)
    fake_wide_pack(const __grid_constant__ WideArguments<T, Divisor, kInteger> wide) {
  using Index = typename Divisor::Index;
  const Arguments<T, Divisor, kInteger>& a = wide.first;
  const Index pack = static_cast<Index>(blockIdx.x) * kThreads + threadIdx.x;
  const bool exists = pack < a.packs, scales = exists && wide.factors.by != nullptr;
  float x[N] = {};
  if (exists) widen_all(load_pack<T, N>(a.x.template at<N>(a.places, pack)), x);
  const int64_t factor = scales ? wide.factors.template first<N>(a.places.place(pack)) : 0;
  if (scales) multiply(x, wide.factors.by + factor);
  float own = 0;
  if constexpr (finds_blocks(kScaling)) own = block_amax(narrow_all<float>(x), a.format.block / N);
  if (!exists) return;
  Faking<kScaling, kInteger> faking;
  faking.take(a.format, a.amax != nullptr ? a.amax[a.places.group(pack)] : 0);
  faking.fake(a.round, own, x);
  if (wide.second_amax != nullptr) {
    Faking<Scaling::kScales, false> again;
    again.take(wide.second_format, wide.second_amax[wide.second_places.group(pack)]);
    again.fake(wide.second_round, 0, x);
  }
  if (scales) multiply(x, wide.factors.back + factor);
  store_pack(a.y + int64_t{pack} * N, narrow_all<T>(x));
}

template <class T, class Grad, class Divisor>
struct ClipArguments {
  StridedRows<T> x;
  Grad* grad;
  const float* amax;
  const float* low;  // null: the other ends are -amax
  GroupPlaces<Divisor> places;
  typename Divisor::Index packs;
  Factors factors;
};

// Reads x, and of the gradient nothing: what is clipped is set to 0.
template <class T, class Grad, int N, class Divisor, bool kScales>
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
      const Index group = a.places.group(pack);
      const float amax = a.amax[group], low = a.low != nullptr ? a.low[group] : -amax;
      float values[N];
      widen_all(x[i], values);
      if constexpr (kScales)
        multiply(values, a.factors.by + a.factors.template first<N>(a.places.place(pack)));
      else if (block_amax(x[i], 1) <= fminf(amax, -low))
        continue;
#pragma unroll
      for (int k = 0; k < N; ++k)
        if (!(values[k] <= amax && values[k] >= low)) a.grad[int64_t{pack} * N + k] = narrow<Grad>(0);
    }
  });
}

quant::Groups groups_in(const FakeQuantize& op, const Tensor& amax) {
  Shape one = op.x.shape();
  for (int d = 0; d < one.ndim(); ++d) one[d] = 1;
  return quant::groups_of(FakeQuantize::kName, op.x.shape(), amax.defined() ? amax.shape() : one);
}

const float* values_of(const Tensor& amax) { return amax.defined() ? amax.data<float>() : nullptr; }

template <class T, int N, class Divisor, Scaling kScaling, bool kInteger>
void launch_wide(const FakeQuantize& op, const Arguments<T, Divisor, kInteger>& arguments,
                 const Factors& factors) {
  const WideArguments<T, Divisor, kInteger> all{
      arguments,       factors,
      values_of(op.again.amax), GroupPlaces<Divisor>(groups_in(op, op.again.amax), N),
      op.again.format, Rounding<false>(op.again.format.element)};
  const int64_t packs = op.x.numel() / N;
  fake_wide_pack<T, N, Divisor, kScaling, kInteger>
      <<<static_cast<unsigned>((packs + kThreads - 1) / kThreads), kThreads, 0,
         device::stream(op.x.device())>>>(all);
}

template <class F>
void visit_all_scalings(const quant::Format& format, F&& f) {
  if (format.has_zero_points()) return f.template operator()<Scaling::kZeroPoints, true>();
  visit_scaling(format, f);
}

Tensor forward(const FakeQuantize& op) {
  const Tensor y = Tensor::empty(op.x.shape(), op.x.dtype(), MemoryTag::kActivations, op.x.device());
  const quant::Groups groups = groups_in(op, op.amax);
  const Factors factors(op);
  const bool wide = factors.by != nullptr || op.again.amax.defined();
  visit_device_float(op.x.dtype(), [&]<class T>() {
    const StridedRows<T> x(op.x);
    const bool has_packs = x.has_packs(kLanes<T>) && factors.have_packs();
    visit_packs<kLanes<T>>(groups, has_packs, [&]<int N, class Divisor>() {
      const int64_t packs = y.numel() / N;
      visit_all_scalings(op.format, [&]<Scaling kScaling, bool kInteger>() {
        const Arguments<T, Divisor, kInteger> arguments{x,
                                                        static_cast<T*>(y.raw()),
                                                        values_of(op.amax),
                                                        values_of(op.low),
                                                        GroupPlaces<Divisor>(groups, N),
                                                        static_cast<typename Divisor::Index>(packs),
                                                        op.format,
                                                        Rounding<kInteger>(op.format.element)};
        if constexpr (kScaling != Scaling::kZeroPoints) {
          if (wide) return launch_wide<T, N, Divisor, kScaling, kInteger>(op, arguments, factors);
        }
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
  const quant::Groups groups = groups_in(op, op.amax);
  const StridedRows<T> x(op.x);
  const Factors factors(op);
  const bool has_packs = x.has_packs(kLanes<T>) && factors.have_packs();
  visit_packs<kLanes<T>>(groups, has_packs, [&]<int N, class Divisor>() {
    const int64_t packs = grad.numel() / N;
    const ClipArguments<T, Grad, Divisor> arguments{x,
                                                    static_cast<Grad*>(grad.raw()),
                                                    op.amax.data<float>(),
                                                    values_of(op.low),
                                                    GroupPlaces<Divisor>(groups, N),
                                                    static_cast<typename Divisor::Index>(packs),
                                                    factors};
    const auto kernel = factors.by != nullptr ? clip_packs<T, Grad, N, Divisor, true>
                                              : clip_packs<T, Grad, N, Divisor, false>;
    kernel<<<blocks_for_runs(packs), kThreads, 0, device::stream(grad.device())>>>(arguments);
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
  const quant::Format& format = signature.format;
  if (format.has_zero_points()) return std::nullopt;
  return refuse_format(format);
}

}  // namespace

void register_cuda_fake_quantize() {
  ops::kernels<FakeQuantize>().add("cuda", {.hardware = hardware::kGpu,
                                            .accepts = accepts,
                                            .forward = forward,
                                            .backward = backward,
                                            .traits = {.wide = true}});
}

}  // namespace temper::backends
