#include "backends/floats.h"
#include "backends/gpu/device_code.h"
#include "backends/gpu/sums.h"
#include "ops/chunk_gated_delta_rule/delta_gates.h"

namespace temper::backends {
namespace {

using ops::DeltaGates;

constexpr int64_t kRowsPerBlock = 64;  // of backward, whose sums do not depend on the GPU

template <class T, class W>
struct Arguments {
  const T *a, *b;
  const W *a_log, *dt_bias;
  const float *dg, *dbeta;
  float *g, *beta;
  T *da, *db;
  float *da_log, *ddt_bias;  // [blocks, heads]
  int64_t tokens, heads, a_stride, b_stride;
};

__device__ float logistic(float value) { return 1 / (1 + expf(-value)); }
__device__ float softplus(float value) { return fmaxf(value, 0.f) + log1pf(expf(-fabsf(value))); }

template <class T, class W>
__global__ void __launch_bounds__(kThreads) make_gates(const __grid_constant__ Arguments<T, W> a) {
  for (int64_t i = global_thread(); i < a.tokens * a.heads; i += grid_threads()) {
    const int64_t token = i / a.heads, head = i % a.heads;
    a.g[i] = -expf(widen(a.a_log[head])) * softplus(widen(a.a[token * a.a_stride + head]) + widen(a.dt_bias[head]));
    a.beta[i] = logistic(widen(a.b[token * a.b_stride + head]));
  }
}

// A block has some tokens; a thread has one head of every `rows`-th of them. A block adds up its threads' sums in the
// order of threads.
template <class T, class W>
__global__ void __launch_bounds__(kThreads) differentiate(const __grid_constant__ Arguments<T, W> a) {
  extern __shared__ float shared[];  // [2, threads]
  const int64_t first = blockIdx.x * kRowsPerBlock, last = min(first + kRowsPerBlock, a.tokens);
  const int width = static_cast<int>(min(a.heads, int64_t{kThreads})), rows = kThreads / width;
  const int row = static_cast<int>(threadIdx.x) / width, column = static_cast<int>(threadIdx.x) % width;
  for (int64_t base = 0; base < a.heads; base += width) {
    const int64_t head = base + column;
    float of_log = 0, of_bias = 0;
    if (row < rows && head < a.heads) {
      const float decay = -expf(widen(a.a_log[head])), bias = widen(a.dt_bias[head]);
      for (int64_t token = first + row; token < last; token += rows) {
        const int64_t i = token * a.heads + head;
        const float x = widen(a.a[token * a.a_stride + head]) + bias, beta = logistic(widen(a.b[token * a.b_stride + head])),
                    own = a.dg[i] * decay * logistic(x);
        of_log += a.dg[i] * decay * softplus(x);
        of_bias += own;
        a.da[i] = narrow<T>(own);
        a.db[i] = narrow<T>(a.dbeta[i] * beta * (1 - beta));
      }
    }
    shared[threadIdx.x] = of_log;
    shared[kThreads + threadIdx.x] = of_bias;
    __syncthreads();
    if (row == 0 && head < a.heads) {
      float sums[2] = {};
      for (int r = 0; r < rows; ++r)
        for (int i = 0; i < 2; ++i) sums[i] += shared[i * kThreads + r * width + column];
      a.da_log[blockIdx.x * a.heads + head] = sums[0];
      a.ddt_bias[blockIdx.x * a.heads + head] = sums[1];
    }
    __syncthreads();
  }
}

// Calls f(arguments) with the dtypes of a and of the weights, and what both directions read.
template <class F>
void visit_arguments(const DeltaGates& op, F&& f) {
  const auto run = [&]<class T, class W>() {
    Arguments<T, W> a{};
    a.a = static_cast<const T*>(op.a.raw());
    a.b = static_cast<const T*>(op.b.raw());
    a.a_log = static_cast<const W*>(op.a_log.raw());
    a.dt_bias = static_cast<const W*>(op.dt_bias.raw());
    a.tokens = op.a.dim(0);
    a.heads = op.a.dim(1);
    a.a_stride = op.a.stride(0);
    a.b_stride = op.b.stride(0);
    f(a);
  };
  visit_wide_or_brain(op.a.dtype(), [&]<class T>() {
    op.a_log.dtype() == DType::kF32 ? run.template operator()<T, float>() : run.template operator()<T, T>();
  });
}
Tensor compact(const DeltaGates& op, DType dtype) {
  return Tensor::empty(op.a.shape(), dtype, MemoryTag::kActivations, op.a.device());
}
// Tokens with any stride; the heads of a token are contiguous.
DeltaGates with_rows(DeltaGates op) {
  for (Tensor* x : {&op.a, &op.b})
    if (x->stride(1) != 1) *x = x->clone();
  return op;
}

DeltaGates::Output forward(const DeltaGates& given) {
  const DeltaGates op = with_rows(given);
  const DeltaGates::Output out{compact(op, DType::kF32), compact(op, DType::kF32)};
  if (op.a.numel() == 0) return out;
  visit_arguments(op, [&]<class T, class W>(Arguments<T, W> a) {
    a.g = out.g.data<float>();
    a.beta = out.beta.data<float>();
    make_gates<<<blocks_for(op.a.numel()), kThreads, 0, device::stream(op.a.device())>>>(a);
  });
  device::check_launch("delta_gates");
  return out;
}

// Sums of blocks for both weights, wanted or not.
struct Partial {
  Tensor a_log, dt_bias;
  explicit Partial(const DeltaGates& op) {
    const int64_t blocks = (op.a.dim(0) + kRowsPerBlock - 1) / kRowsPerBlock;
    a_log = Tensor::empty({blocks, op.a.dim(1)}, DType::kF32, MemoryTag::kWorkspace, op.a.device());
    dt_bias = Tensor::empty(a_log.shape(), DType::kF32, MemoryTag::kWorkspace, op.a.device());
  }
};

DeltaGates::Grads backward(const DeltaGates& given, const Tensor& dg, const Tensor& dbeta, const GradTarget& a_log,
                           const GradTarget& dt_bias) {
  const DeltaGates op = with_rows(given);
  const DeltaGates::Grads grads{compact(op, op.a.dtype()), compact(op, op.a.dtype())};
  const Partial partial(op);
  if (op.a.numel() > 0)
    visit_arguments(op, [&]<class T, class W>(Arguments<T, W> a) {
      a.dg = dg.data<float>();
      a.dbeta = dbeta.data<float>();
      a.da = static_cast<T*>(grads.a.raw());
      a.db = static_cast<T*>(grads.b.raw());
      a.da_log = partial.a_log.data<float>();
      a.ddt_bias = partial.dt_bias.data<float>();
      differentiate<<<static_cast<unsigned>(partial.a_log.dim(0)), kThreads, 2 * kThreads * sizeof(float),
                      device::stream(op.a.device())>>>(a);
    });
  device::check_launch("delta_gates backward");
  if (a_log.wanted()) add_column_sums(partial.a_log, a_log);
  if (dt_bias.wanted()) add_column_sums(partial.dt_bias, dt_bias);
  return grads;
}

DeltaGates::Grads outline_backward(const DeltaGates& op, const Tensor& dg, const Tensor& dbeta, const GradTarget& a_log,
                                   const GradTarget& dt_bias) {
  const Partial partial(op);
  return ops::outline<DeltaGates>().backward(op, dg, dbeta, a_log, dt_bias);
}

}  // namespace

void register_cuda_delta_gates() {
  ops::kernels<DeltaGates>().add("cuda", {.hardware = hardware::kGpu,
                                          .accepts = refuse_float16,
                                          .forward = forward,
                                          .backward = backward,
                                          .batch_invariant = true,
                                          .outline = {.backward = outline_backward}});
}

}  // namespace temper::backends
