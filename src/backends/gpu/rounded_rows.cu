#include "backends/gpu/rounded_rows.h"

#include "backends/gpu/choice_sums.h"
#include "backends/gpu/expert_rows.h"
#include "backends/gpu/fake_elements.h"
#include "backends/gpu/swiglu_element.h"

namespace temper::backends {
namespace {

using quant::Scaling;

constexpr int kWarp = 32, kAhead = 4;  // packs of a thread that are loaded before the first is used

// Where a row's amax is.
struct RowAmax {
  explicit RowAmax(const RoundedRows& rows)
      : in_row(rows.how.from == ops::RowRounding::Amax::kRows),
        amax(rows.how.amax.defined() ? rows.how.amax.data<float>() : nullptr),
        one(amax != nullptr && rows.how.amax.numel() == 1),
        ids(rows.ids.data<int32_t>()),
        choices(rows.plan.choices()) {}

  __device__ float given(int64_t row) const {
    return amax == nullptr ? 0 : amax[one ? 0 : ids[choices[row]]];
  }

  bool in_row;
  const float* amax;
  bool one;
  const int *ids, *choices;
};

__device__ float largest_of_warp(float value) {
  for (int lane = 1; lane < kWarp; lane *= 2)
    value = largest_of(value, __shfl_xor_sync(0xffffffffu, value, lane));
  return value;
}

// How one row's packs are rounded: those of a warp's threads are adjacent. Whole warps call it.
template <class T, int N, Scaling kScaling, bool kInteger>
struct RowFaking {
  __device__ RowFaking(const quant::Format& format, const Rounding<kInteger>& rounding, float amax)
      : round(rounding), lanes(finds_blocks(kScaling) ? format.block / N : 1) {
    faking.take(format, amax);
  }
  __device__ Pack<T, N> operator()(const Pack<T, N>& pack) const {
    float own = 0;
    if constexpr (finds_blocks(kScaling)) own = block_amax(pack, lanes);
    return faked(faking, round, own, pack);
  }

  const Rounding<kInteger>& round;
  int lanes;
  Faking<kScaling, kInteger> faking;
};

// The parameters of rounding, for all kernels of rows.
template <bool kInteger>
struct How {
  explicit How(const RoundedRows& rows)
      : format(rows.how.format), round(rows.how.format.element), amax(rows), rounds(rows.how.rounds) {}

  quant::Format format;
  Rounding<kInteger> round;
  RowAmax amax;
  bool rounds;
};

// Calls use(pack, i) with pack i of a row for all i, `load` gives them; the last ones of a warp are beyond the
// row, where `use` is called for the warp's sake. Loads go ahead.
template <class Loaded, class Load, class Use>
__device__ void for_packs(int packs, const Load& load, const Use& use) {
  for (int first = static_cast<int>(threadIdx.x) % kWarp; first - static_cast<int>(threadIdx.x) % kWarp < packs;
       first += kWarp * kAhead) {
    Loaded loaded[kAhead] = {};
#pragma unroll
    for (int i = 0; i < kAhead; ++i)
      if (first + kWarp * i < packs) loaded[i] = load(first + kWarp * i);
#pragma unroll
    for (int i = 0; i < kAhead; ++i) use(loaded[i], first + kWarp * i);
  }
}

template <class T, int N, Scaling kScaling, bool kInteger>
__global__ void __launch_bounds__(kThreads)
    gather(const __grid_constant__ How<kInteger> how, const int* tokens, int64_t rows, const T* x, int columns,
           T* y) {
  const int64_t row = global_thread() / kWarp;
  if (row >= rows) return;
  const T* const from = x + int64_t{tokens[row]} * columns;
  const int packs = columns / N;
  using Own = Pack<T, N>;
  const auto load = [&](int i) { return load_pack<T, N>(from + i * N); };
  float amax = how.amax.given(row);
  if (how.amax.in_row) {
    for_packs<Own>(packs, load, [&](const Own& pack, int) { amax = largest_of(amax, block_amax(pack, 1)); });
    amax = largest_of_warp(amax);
  }
  const RowFaking<T, N, kScaling, kInteger> faking(how.format, how.round, amax);
  for_packs<Own>(packs, load, [&](const Own& pack, int i) {
    const Own rounded = faking(pack);
    if (i < packs) store_pack(y + row * columns + i * N, rounded);
  });
}

template <class T, int N>
struct GatePacks {
  Pack<T, N> gate, up;

  __device__ Pack<T, N> swiglu() const {
    float gates[N], ups[N], y[N];
    widen_all(gate, gates);
    widen_all(up, ups);
#pragma unroll
    for (int k = 0; k < N; ++k) y[k] = backends::swiglu(gates[k], ups[k]);
    return narrow_all<T>(y);
  }
};

template <class T, int N>
__device__ float amax_of_swiglu(const T* gate, int width) {
  float amax = 0;
  using Own = GatePacks<T, N>;
  for_packs<Own>(
      width / N,
      [&](int i) { return Own{load_pack<T, N>(gate + i * N), load_pack<T, N>(gate + width + i * N)}; },
      [&](const Own& own, int) { amax = largest_of(amax, block_amax(own.swiglu(), 1)); });
  return largest_of_warp(amax);
}

template <class T, int N, Scaling kScaling, bool kInteger>
__global__ void __launch_bounds__(kThreads)
    forward_rows(const __grid_constant__ How<kInteger> how, int64_t rows, const T* gate_up, int width, T* y) {
  const int64_t row = global_thread() / kWarp;
  if (row >= rows) return;
  const T* const gate = gate_up + row * 2 * width;
  const float amax = how.amax.in_row ? amax_of_swiglu<T, N>(gate, width) : how.amax.given(row);
  const RowFaking<T, N, kScaling, kInteger> faking(how.format, how.round, amax);
  using Own = GatePacks<T, N>;
  for_packs<Own>(
      width / N,
      [&](int i) { return Own{load_pack<T, N>(gate + i * N), load_pack<T, N>(gate + width + i * N)}; },
      [&](const Own& own, int i) {
        Pack<T, N> out = own.swiglu();
        if (how.rounds) out = faking(out);
        if (i * N < width) store_pack(y + row * width + i * N, out);
      });
}

template <class T>
struct BackwardArguments {
  int64_t rows;
  int width;
  const T *gate_up, *dy;
  const float* weights;
  T *dgate_up, *y;
  float* dweights;
  bool clips;
};

template <class T, int N>
struct GradientPacks {
  GatePacks<T, N> of;
  Pack<T, N> dy;
};

template <class T, int N, Scaling kScaling, bool kInteger>
__global__ void __launch_bounds__(kThreads)
    backward_rows(const __grid_constant__ How<kInteger> how, const __grid_constant__ BackwardArguments<T> a) {
  const int64_t row = global_thread() / kWarp;
  if (row >= a.rows) return;
  const int width = a.width, choice = how.amax.choices[row];
  const T *const gate = a.gate_up + row * 2 * width, *const grad = a.dy + row * width;
  const float weight = a.weights[choice],
              amax = how.amax.in_row ? amax_of_swiglu<T, N>(gate, width) : how.amax.given(row);
  const RowFaking<T, N, kScaling, kInteger> faking(how.format, how.round, amax);
  float dot = 0;
  using Own = GradientPacks<T, N>;
  const auto load = [&](int i) {
    return Own{{load_pack<T, N>(gate + i * N), load_pack<T, N>(gate + width + i * N)},
               load_pack<T, N>(grad + i * N)};
  };
  for_packs<Own>(width / N, load, [&](const Own& own, int i) {
    const Pack<T, N> plain = own.of.swiglu();
    Pack<T, N> read = plain;
    if (how.rounds) read = faking(plain);
    if (i * N >= width) return;
    float gates[N], ups[N], given[N], before[N], values[N];
    widen_all(own.of.gate, gates);
    widen_all(own.of.up, ups);
    widen_all(own.dy, given);
    widen_all(plain, before);
    widen_all(read, values);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      dot += given[k] * values[k];
      const bool clipped = a.clips && !(fabsf(before[k]) <= amax);
      const SwigluBackward one = swiglu_backward(gates[k], ups[k], clipped ? 0 : weight * given[k]);
      gates[k] = one.dgate;
      ups[k] = one.dup;
      values[k] *= weight;
    }
    T* const to = a.dgate_up + row * 2 * width + i * N;
    store_pack(to, narrow_all<T>(gates));
    store_pack(to + width, narrow_all<T>(ups));
    if (a.y != nullptr) store_pack(a.y + row * width + i * N, narrow_all<T>(values));
  });
  dot = warp_sum(dot);
  if (a.dweights != nullptr && threadIdx.x % kWarp == 0) a.dweights[choice] = dot;
}

template <class T>
struct SumArguments {
  const int* places;
  RowAmax amax;
  int top_k;
  const T *rows, *x;
  T* y;
  int64_t columns;
};

// A thread has N neighbouring columns of a token.
template <class T, int N>
__global__ void __launch_bounds__(kThreads)
    sum_tokens(const __grid_constant__ SumArguments<T> a, int64_t packs) {
  const int64_t i = global_thread(), in_row = a.columns / N;
  if (i >= packs) return;
  const int64_t token = i / in_row, column = i % in_row * N;
  float values[N];
  widen_all(load_pack<T, N>(a.x + token * a.columns + column), values);
  const auto add = [&](int j, const float(&own)[N], float(&sums)[N]) {
    const float most = a.amax.amax[a.amax.one ? 0 : a.amax.ids[token * a.top_k + j]];
#pragma unroll
    for (int k = 0; k < N; ++k)
      if (fabsf(values[k]) <= most) sums[k] += own[k];
  };
  sum_of_choices<T, N>(a.places + token * a.top_k, a.top_k, a.rows + column, a.columns,
                       a.y + token * a.columns + column, add);
}

unsigned blocks_of(int64_t rows) {
  constexpr int64_t kRows = kThreads / kWarp;
  return static_cast<unsigned>((rows + kRows - 1) / kRows);
}

// Calls f.template operator()<T, N, scaling, whether elements are integers>() for rows of `columns` columns.
template <class F>
void visit(const RoundedRows& rows, DType dtype, int64_t columns, F&& f) {
  visit_wide_or_brain(dtype, [&]<class T>() {
    visit_scaling(rows.how.format, [&]<Scaling kScaling, bool kInteger>() {
      columns % kLanes<T> == 0 ? f.template operator()<T, kLanes<T>, kScaling, kInteger>()
                               : f.template operator()<T, 1, kScaling, kInteger>();
    });
  });
}

}  // namespace

Tensor gather_rounded(const RoundedRows& rows, const Tensor& given) {
  const auto& [plan, how, ids] = rows;
  if (!how.rounds) return gather_choices(plan, given);
  const Tensor x = aligned(given);
  const int64_t columns = x.dim(1);
  const Tensor y = Tensor::empty({plan.rows, columns}, x.dtype(), MemoryTag::kWorkspace, x.device());
  if (y.numel() == 0 || only_counts(x.device())) return y;
  visit(rows, x.dtype(), columns, [&]<class T, int N, Scaling kScaling, bool kInteger>() {
    gather<T, N, kScaling, kInteger><<<blocks_of(plan.rows), kThreads, 0, device::stream(x.device())>>>(
        How<kInteger>(rows), plan.tokens(), plan.rows, static_cast<const T*>(x.raw()),
        static_cast<int>(columns), static_cast<T*>(y.raw()));
  });
  device::check_launch("gather_rounded");
  return y;
}

void rounded_swiglu(const RoundedRows& rows, const Tensor& gate_up, const Tensor& y) {
  if (y.numel() == 0 || only_counts(y.device())) return;
  visit(rows, y.dtype(), y.dim(1), [&]<class T, int N, Scaling kScaling, bool kInteger>() {
    forward_rows<T, N, kScaling, kInteger><<<blocks_of(y.dim(0)), kThreads, 0, device::stream(y.device())>>>(
        How<kInteger>(rows), y.dim(0), static_cast<const T*>(gate_up.raw()), static_cast<int>(y.dim(1)),
        static_cast<T*>(y.raw()));
  });
  device::check_launch("rounded_swiglu");
}

void rounded_swiglu_backward(const RoundedRows& rows, const Tensor& gate_up, const Tensor& weights,
                             const Tensor& dy, const RoundedSwigluGradients& grads) {
  if (dy.numel() == 0 || only_counts(dy.device())) return;
  visit(rows, dy.dtype(), dy.dim(1), [&]<class T, int N, Scaling kScaling, bool kInteger>() {
    const BackwardArguments<T> arguments{dy.dim(0),
                                         static_cast<int>(dy.dim(1)),
                                         static_cast<const T*>(gate_up.raw()),
                                         static_cast<const T*>(dy.raw()),
                                         weights.data<float>(),
                                         static_cast<T*>(grads.dgate_up.raw()),
                                         grads.y.defined() ? static_cast<T*>(grads.y.raw()) : nullptr,
                                         grads.dweights.defined() ? grads.dweights.data<float>() : nullptr,
                                         rows.how.clips()};
    backward_rows<T, N, kScaling, kInteger>
        <<<blocks_of(dy.dim(0)), kThreads, 0, device::stream(dy.device())>>>(How<kInteger>(rows), arguments);
  });
  device::check_launch("rounded_swiglu_backward");
}

void sum_unclipped(const RoundedRows& rows, const Tensor& given, const Tensor& x, const Tensor& dx) {
  if (!rows.how.clips()) return sum_choices(rows.plan, given, dx);
  if (dx.numel() == 0 || only_counts(dx.device())) return;
  const Tensor read = aligned(x);
  visit_wide_or_brain(dx.dtype(), [&]<class T>() {
    const SumArguments<T> arguments{rows.plan.places(),
                                    RowAmax(rows),
                                    static_cast<int>(rows.plan.rows / dx.dim(0)),
                                    static_cast<const T*>(given.raw()),
                                    static_cast<const T*>(read.raw()),
                                    static_cast<T*>(dx.raw()),
                                    dx.dim(1)};
    const auto launch = [&]<int N>() {
      const int64_t packs = dx.numel() / N;
      const auto blocks = static_cast<unsigned>((packs + kThreads - 1) / kThreads);
      sum_tokens<T, N><<<blocks, kThreads, 0, device::stream(dx.device())>>>(arguments, packs);
    };
    dx.dim(1) % kLanes<T> == 0 ? launch.template operator()<kLanes<T>>() : launch.template operator()<1>();
  });
  device::check_launch("sum_unclipped");
}

ops::Refusal refuse_rounding(const ops::RoundedExperts::Signature& signature) {
  if (signature.dtype == DType::kF16) return "is for float32 and bfloat16, this is float16";
  for (const quant::Format& format : {signature.in, signature.inner})
    if (format != quant::Format{})
      if (const ops::Refusal refusal = refuse_format(format)) return refusal;
  return std::nullopt;
}

}  // namespace temper::backends
