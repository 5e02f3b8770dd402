// Each thread has some channels of a run of tokens and keeps the last inputs in registers: x is read once, except
// the few tokens before a run and, backward, behind it, which are read twice.
#include "backends/cuda/delta/conv_window.h"
#include "backends/gpu/sums.h"
#include "ops/causal_conv1d/causal_conv1d.h"

namespace temper::backends {
namespace {

using ops::CausalConv1d;

constexpr int kMostWidth = 8, kForwardRun = 32, kBackwardRun = 128, kWarps = kThreads / 32;

template <class T, int N, int kWidth>
__global__ void __launch_bounds__(kThreads, 4) convolve(const __grid_constant__ ConvArguments<T> a) {
  const ConvRun run = a.runs[blockIdx.y];
  const int channel = static_cast<int>(blockIdx.x * kThreads + threadIdx.x) * N;
  if (run.tokens == 0 || channel >= a.channels) return;
  const ConvWeights<T, N, kWidth> weights(a, channel);
  float ring[kWidth][N];
  begin_window<T, N, kWidth>(ring, a, run.document, run.first, channel);
  const int64_t first = int64_t{a.documents[run.document].first} + run.first;
  const T* const x = a.x + first * a.x_stride + channel;
  T* const y = a.out + first * a.channels + channel;
  Pack<T, N> packs[kWidth];
  const auto load = [&](int t) {  // loads that travel together, while what came before is worked on
#pragma unroll
    for (int i = 0; i < kWidth; ++i) packs[i] = load_pack<T, N>(x + int64_t{min(t + i, run.tokens - 1)} * a.x_stride);
  };
  load(0);
  for (int t = 0; t < run.tokens; t += kWidth) {
    Pack<T, N> now[kWidth];
#pragma unroll
    for (int i = 0; i < kWidth; ++i) now[i] = packs[i];
    load(t + kWidth);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      widen_all(now[i], ring[i]);
      float sums[N];
      weights.convolve(ring, i, sums);
#pragma unroll
      for (float& sum : sums) sum *= logistic(sum);
      if (t + i < run.tokens) store_narrow<T, N>(y + int64_t{t + i} * a.channels, sums);
    }
  }
}

// The gradient of the convolution at a token, wherever its inputs are.
template <class T, int N>
__device__ void slope_at(float (&grad)[N], const ConvArguments<T>& a, int document, int token, int channel) {
  float sums[N] = {}, dy[N];
  for (int j = 0; j < a.width; ++j) {
    float x[N];
    const T* from = a.input(document, token - a.kept() + j);
    load_or_zero<T, N>(x, from == nullptr ? nullptr : from + channel);
    for (int k = 0; k < N; ++k) sums[k] += x[k] * widen(a.weight[(channel + k) * a.width + j]);
  }
  load_or_zero<T, N>(dy, a.dy + (int64_t{a.documents[document].first} + token) * a.channels + channel);
  for (int k = 0; k < N; ++k) grad[k] = dy[k] * silu_slope(sums[k]);
}
// What arrives at the input of a document at `index` (which may be before its first) from its own tokens…
template <class T, int N>
__device__ void add_tokens(float (&grad)[N], const ConvArguments<T>& a, int document, int index, int channel) {
  for (int j = 0; j <= a.kept(); ++j) {
    const int token = index + a.kept() - j;
    if (token < 0 || token >= a.documents[document].tokens) continue;
    float own[N];
    slope_at<T, N>(own, a, document, token, channel);
    for (int k = 0; k < N; ++k) grad[k] += own[k] * widen(a.weight[(channel + k) * a.width + j]);
  }
}
// … and from its final window.
template <class T, int N>
__device__ void add_window(float (&grad)[N], const ConvArguments<T>& a, int document, int index, int channel) {
  const int place = index - a.documents[document].tokens + a.kept();
  if (a.dfinal == nullptr || place < 0) return;
  float own[N];
  load_or_zero<T, N>(own, a.window(a.dfinal, document, place) + channel);
  for (int k = 0; k < N; ++k) grad[k] += own[k];
}
// What arrives from behind its end: from its final window and from those that continue it.
template <class T, int N>
__device__ void add_end(float (&grad)[N], const ConvArguments<T>& a, int document, int index, int channel) {
  const ConvDocument d = a.documents[document];
  if (index < d.tokens - a.kept()) return;
  add_window<T, N>(grad, a, document, index, channel);
  if (d.continues >= 0) return;
  for (int other = d.next; other >= 0; other = a.documents[other].next) {
    add_tokens<T, N>(grad, a, other, index - d.tokens, channel);
    add_window<T, N>(grad, a, other, index - d.tokens, channel);
  }
}

// A run backward, which goes along the tokens in their order: the gradient of the convolution at a token, and with it
// that of the input kWidth - 1 tokens before.
template <class T, int N, int kWidth>
struct Backward {
  const ConvArguments<T>& a;
  const ConvRun& run;
  int channel, end;  // end: from where on gradients arrive from behind the document
  int tokens;        // of the document, from the run on
  int64_t first;     // token of the row
  ConvWeights<T, N, kWidth> weights;
  float ring[kWidth][N], slopes[kWidth][N] = {}, sums[kWidth][N] = {};

  __device__ Backward(const ConvArguments<T>& a, const ConvRun& run, int channel)
      : a(a), run(run), channel(channel), weights(a, channel) {
    const ConvDocument d = a.documents[run.document];
    first = int64_t{d.first} + run.first;
    tokens = d.tokens - run.first;
    const bool more = a.dfinal != nullptr || (d.continues < 0 && d.next >= 0);
    end = more ? tokens - a.kept() : INT_MAX;
    begin_window<T, N, kWidth>(ring, a, run.document, run.first, channel);
  }

  __device__ void go() {
    for (int t = 0; t < run.tokens + kWidth - 1; t += kWidth) {
      Pack<T, N> x[kWidth], dy[kWidth];
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        const int64_t at = first + min(t + i, tokens - 1);
        x[i] = load_pack<T, N>(a.x + at * a.x_stride + channel);
        dy[i] = load_pack<T, N>(a.dy + at * a.channels + channel);
      }
#pragma unroll
      for (int i = 0; i < kWidth; ++i) step(t, i, x[i], dy[i]);
    }
  }
  __device__ void step(int before, int i, const Pack<T, N>& x, const Pack<T, N>& dy) {
    const int t = before + i;
    widen_all(x, ring[i]);
    float at[N], own[N];
    weights.convolve(ring, i, at);
    widen_all(dy, own);
    const float there = t < tokens ? 1.f : 0.f, counts = t < run.tokens ? 1.f : 0.f;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const float slope = there * own[k] * silu_slope(at[k]), counted = counts * slope;
      slopes[i][k] = slope;
#pragma unroll
      for (int j = 0; j < kWidth; ++j) sums[j][k] += counted * ring[(i + 1 + j) % kWidth][k];
    }
    if (t >= kWidth - 1 && t < run.tokens + kWidth - 1 && a.out != nullptr) write(t - (kWidth - 1), i);
  }
  // `last`: the slope of its last reader.
  __device__ void write(int t, int last) {
    float grad[N] = {};
#pragma unroll
    for (int k = 0; k < N; ++k)
#pragma unroll
      for (int j = 0; j < kWidth; ++j) grad[k] += slopes[(last + kWidth - j) % kWidth][k] * weights.values[j][k];
    if (t >= end) add_end<T, N>(grad, a, run.document, run.first + t, channel);
    store_narrow<T, N>(a.out + (first + t) * a.channels + channel, grad);
  }
};

// A block has 32 packs of channels, each of its warps a run. Their sums are added up in the order of the warps.
template <class T, int N, int kWidth>
__global__ void __launch_bounds__(kThreads) differentiate(const __grid_constant__ ConvArguments<T> a) {
  extern __shared__ float shared[];  // [warps, 32 packs, N, width]
  const int warp = static_cast<int>(threadIdx.x) / 32, pack = static_cast<int>(threadIdx.x) % 32;
  const int index = static_cast<int>(blockIdx.y) * kWarps + warp, channel = static_cast<int>(blockIdx.x * 32 + pack) * N;
  const ConvRun run = index < a.run_count ? a.runs[index] : ConvRun{};
  const bool works = run.tokens > 0 && channel < a.channels;
  float* const own = shared + threadIdx.x * N * a.width;
  for (int i = 0; i < N * a.width; ++i) own[i] = 0;
  if (works) {
    Backward<T, N, kWidth> backward(a, run, channel);
    backward.go();
    for (int j = 0; j < kWidth; ++j)
      for (int k = 0; k < N; ++k)
        if (const int at = j - (kWidth - a.width); at >= 0) own[k * a.width + at] = backward.sums[j][k];
  }
  if (a.partial == nullptr) return;
  __syncthreads();
  const int size = 32 * N * a.width;
  for (int i = threadIdx.x; i < size; i += kThreads) {
    const int64_t column = int64_t{blockIdx.x} * size + i;
    if (column >= int64_t{a.channels} * a.width) continue;
    float sum = 0;
    for (int each = 0; each < kWarps; ++each) sum += shared[each * size + i];
    a.partial[int64_t{blockIdx.y} * a.channels * a.width + column] = sum;
  }
}

// The last inputs of each document, or the gradients of those before its first.
template <class T, bool kGradient>
__global__ void __launch_bounds__(kThreads) make_windows(const __grid_constant__ ConvArguments<T> a) {
  const int64_t size = int64_t{a.document_count} * a.kept() * a.channels;
  for (int64_t i = global_thread(); i < size; i += grid_threads()) {
    const int channel = static_cast<int>(i % a.channels), place = static_cast<int>(i / a.channels % a.kept()),
              document = static_cast<int>(i / a.channels / a.kept());
    const ConvDocument d = a.documents[document];
    float value[1] = {};
    if constexpr (kGradient) {
      if (d.continues < 0) {
        add_tokens<T, 1>(value, a, document, place - a.kept(), channel);
        add_end<T, 1>(value, a, document, place - a.kept(), channel);
      }
    } else if (const T* from = a.input(document, d.tokens - a.kept() + place); from != nullptr) {
      value[0] = widen(from[channel]);
    }
    a.windows[i] = narrow<T>(value[0]);
  }
}

Tensor with_rows(const Tensor& x) { return x.stride(1) == 1 ? x : x.clone(); }

template <class T>
ConvArguments<T> arguments_of(const CausalConv1d& op, const Tensor& x, const ConvLists& lists) {
  return {.x = static_cast<const T*>(x.raw()),
          .weight = static_cast<const T*>(op.weight.raw()),
          .initial = op.initial.defined() ? static_cast<const T*>(op.initial.raw()) : nullptr,
          .documents = static_cast<const ConvDocument*>(lists.documents.raw()),
          .runs = static_cast<const ConvRun*>(lists.runs.raw()),
          .x_stride = x.stride(0),
          .channels = static_cast<int>(op.channels()),
          .width = static_cast<int>(op.width()),
          .run_count = lists.run_count,
          .document_count = lists.document_count,
          .aligned_weight = is_aligned(op.weight)};
}

// Calls f.template operator()<N, kWidth>(): packs of 8 bytes, of which more fit into registers than of 16, where the
// tiling has them and all rows keep them aligned.
template <class T, class F>
void visit_packs(const CausalConv1d& op, const Tensor& x, std::initializer_list<const Tensor*> others, F&& f) {
  bool packs = op.tiling == 0 && op.channels() % kLanes<T> == 0 && x.stride(0) % kLanes<T> == 0 && is_aligned(x);
  for (const Tensor* other : others) packs = packs && (!other->defined() || is_aligned(*other));
  const auto width = [&]<int N>() {
    op.width() <= 4 ? f.template operator()<N, 4>() : f.template operator()<N, kMostWidth>();
  };
  packs ? width.template operator()<kLanes<T> / 2>() : width.template operator()<1>();
}

Tensor compact(const CausalConv1d& op) {
  return Tensor::empty(op.x.shape(), op.x.dtype(), MemoryTag::kActivations, op.x.device());
}
Tensor windows_of(const CausalConv1d& op) {
  return Tensor::empty({op.documents.count(), op.width() - 1, op.channels()}, op.x.dtype(), MemoryTag::kActivations,
                       op.x.device());
}
template <bool kGradient, class T>
void launch_windows(const ConvArguments<T>& arguments, const Tensor& windows) {
  if (windows.numel() > 0)
    make_windows<T, kGradient>
        <<<blocks_for(windows.numel()), kThreads, 0, device::stream(windows.device())>>>(arguments);
}

CausalConv1d::Output forward(const CausalConv1d& op, bool want_final) {
  const CausalConv1d::Output out{compact(op), want_final ? windows_of(op) : Tensor()};
  if (op.documents.count() == 0) return out;
  const Device device = op.x.device();
  const ConvLists lists = conv_lists(op.documents, op.tokens(), kForwardRun, device);
  const Tensor x = with_rows(op.x);
  visit_wide_or_brain(op.x.dtype(), [&]<class T>() {
    ConvArguments<T> arguments = arguments_of<T>(op, x, lists);
    arguments.out = static_cast<T*>(out.y.raw());
    arguments.windows = want_final ? static_cast<T*>(out.final_window.raw()) : nullptr;
    visit_packs<T>(op, x, {&op.initial}, [&]<int N, int kWidth>() {
      const auto columns = static_cast<unsigned>((op.channels() / N + kThreads - 1) / kThreads);
      convolve<T, N, kWidth>
          <<<dim3(columns, static_cast<unsigned>(lists.run_count)), kThreads, 0, device::stream(device)>>>(arguments);
    });
    if (want_final) launch_windows<false>(arguments, out.final_window);
  });
  device::check_launch("causal_conv1d");
  return out;
}

Tensor partial_sums(const CausalConv1d& op, const GradTarget& weight) {
  if (!weight.wanted()) return {};
  const int64_t runs = op.tokens() / kBackwardRun + op.documents.count();
  return Tensor::empty({(runs + kWarps - 1) / kWarps, op.channels() * op.width()}, DType::kF32, MemoryTag::kWorkspace,
                       op.x.device());
}

// Of a block of the backward pass, whose threads have `lanes` channels each; forward needs none.
int64_t shared_bytes(int64_t lanes, int64_t width) { return int64_t{sizeof(float)} * kThreads * lanes * width; }

std::vector<ops::Tiling> tilings(const CausalConv1d::Signature& s) {
  const int64_t lanes = 8 / size_of(s.dtype);
  return {{fmt::format("threads of {} channels", lanes), 8 * shared_bytes(lanes, s.width)},
          {"threads of 1 channel", 8 * shared_bytes(1, s.width)}};
}

CausalConv1d::Grads backward(const CausalConv1d& op, const Tensor& dy, const Tensor& dfinal,
                             CausalConv1d::Wanted wanted, const GradTarget& weight) {
  const CausalConv1d::Grads grads{wanted.x ? compact(op) : Tensor(), wanted.initial ? windows_of(op) : Tensor()};
  const Device device = op.x.device();
  const Tensor x = with_rows(op.x), partial = partial_sums(op, weight);
  const ConvLists lists = conv_lists(op.documents, op.tokens(), kBackwardRun, device);
  visit_wide_or_brain(op.x.dtype(), [&]<class T>() {
    const auto at = [](const Tensor& tensor) { return tensor.defined() ? static_cast<T*>(tensor.raw()) : nullptr; };
    ConvArguments<T> arguments = arguments_of<T>(op, x, lists);
    arguments.dy = at(dy);
    arguments.dfinal = at(dfinal);
    arguments.out = at(grads.x);
    arguments.windows = at(grads.initial);
    arguments.partial = partial.defined() ? partial.data<float>() : nullptr;
    visit_packs<T>(op, x, {&op.initial, &dy, &dfinal}, [&]<int N, int kWidth>() {
      const dim3 blocks(static_cast<unsigned>((op.channels() / N + 31) / 32),
                        static_cast<unsigned>((lists.run_count + kWarps - 1) / kWarps));
      const auto bytes = static_cast<size_t>(shared_bytes(N, op.width()));
      allow_scratch(differentiate<T, N, kWidth>, bytes);
      if (lists.run_count > 0)
        differentiate<T, N, kWidth><<<blocks, kThreads, bytes, device::stream(device)>>>(arguments);
    });
    if (wanted.initial) launch_windows<true>(arguments, grads.initial);
  });
  device::check_launch("causal_conv1d backward");
  if (weight.wanted()) add_column_sums(partial, weight);
  return grads;
}

CausalConv1d::Grads outline_backward(const CausalConv1d& op, const Tensor& dy, const Tensor& dfinal,
                                     CausalConv1d::Wanted wanted, const GradTarget& weight) {
  const Tensor partial = partial_sums(op, weight);
  return ops::outline<CausalConv1d>().backward(op, dy, dfinal, wanted, weight);
}

ops::Refusal accepts(const CausalConv1d::Signature& s, const HardwareFacts&) {
  if (s.dtype == DType::kF16) return "dtype must be float32 or bfloat16";
  if (s.width > kMostWidth) return fmt::format("width must be at most {}, is {}", kMostWidth, s.width);
  return std::nullopt;
}
}  // namespace

void register_cuda_causal_conv1d() {
  ops::kernels<CausalConv1d>().add("cuda", {.hardware = hardware::kGpu,
                                            .accepts = accepts,
                                            .forward = forward,
                                            .backward = backward,
                                            .batch_invariant = true,
                                            .repeats = true,
                                            .tilings = tilings,
                                            .outline = {.backward = outline_backward}});
}
}  // namespace temper::backends
