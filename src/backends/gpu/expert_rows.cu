#include "backends/gpu/expert_rows.h"

#include "backends/gpu/choice_sums.h"

namespace temper::backends {
namespace {

// A thread has N neighbouring columns of a token.
template <class T, int N>
__global__ void __launch_bounds__(kThreads)
    sum_rows(const int* places, int top_k, const T* rows, const float* weights, int64_t columns, int64_t packs,
             T* y) {
  const int64_t in_row = columns / N;
  for (int64_t i = global_thread(); i < packs; i += grid_threads()) {
    const int64_t token = i / in_row, column = i % in_row * N;
    const auto add = [&](int j, const float(&own)[N], float(&sums)[N]) {
      const float weight = weights == nullptr ? 1 : weights[token * top_k + j];
#pragma unroll
      for (int k = 0; k < N; ++k) sums[k] += weight * own[k];
    };
    sum_of_choices<T, N>(places + token * top_k, top_k, rows + column, columns, y + token * columns + column, add);
  }
}

// A thread has N neighbouring columns of a row.
template <class T, int N>
__global__ void __launch_bounds__(kThreads)
    gather_rows(const int* tokens, const T* x, int64_t columns, int64_t packs, T* rows) {
  const int64_t in_row = columns / N;
  for (int64_t i = global_thread(); i < packs; i += grid_threads()) {
    const int64_t row = i / in_row, column = i % in_row * N;
    store_pack(rows + row * columns + column, load_pack<T, N>(x + tokens[row] * columns + column));
  }
}

__global__ void __launch_bounds__(kThreads)
    add_parts(const int* places, int64_t rows, const float* parts, int count, float* sums) {
  for (int64_t choice = global_thread(); choice < rows; choice += grid_threads()) {
    const float* const own = parts + int64_t{places[choice]} * count;
    float sum = 0;
    for (int part = 0; part < count; ++part) sum += own[part];
    sums[choice] = sum;
  }
}

}  // namespace

Tensor with_whole_chunks(const Tensor& tensor) { return aligned(tensor); }

void sum_choices(const ExpertPlan& plan, const Tensor& rows, const Tensor& y, const Tensor& weights) {
  if (y.numel() == 0 || only_counts(y.device())) return;
  const int64_t columns = y.dim(1);
  const int top_k = static_cast<int>(plan.rows / y.dim(0));
  visit_device_float(y.dtype(), [&]<class T>() {
    const auto launch = [&]<int N>() {
      const int64_t packs = y.numel() / N;
      const auto blocks = static_cast<unsigned>((packs + kThreads - 1) / kThreads);
      sum_rows<T, N><<<blocks, kThreads, 0, device::stream(y.device())>>>(
          plan.places(), top_k, static_cast<const T*>(rows.raw()),
          weights.defined() ? weights.data<float>() : nullptr, columns, packs, static_cast<T*>(y.raw()));
    };
    columns % kLanes<T> == 0 ? launch.template operator()<kLanes<T>>() : launch.template operator()<1>();
  });
  device::check_launch("sum_choices");
}

Tensor rows_of_plan(const ExpertPlan& plan, const Tensor& like, int64_t columns, MemoryTag tag) {
  return Tensor::empty({plan.rows, columns}, like.dtype(), tag, like.device());
}

ops::MoeExperts::Grads empty_gradients(const ops::MoeExperts& op, bool x, bool weights) {
  ops::MoeExperts::Grads grads;
  if (x) grads.x = ops::empty_like(op.x, op.x.shape());
  if (weights) grads.weights = ops::empty_like(op.x, op.weights.shape(), DType::kF32);
  return grads;
}

Tensor gather_choices(const ExpertPlan& plan, const Tensor& given) {
  const Tensor x = with_whole_chunks(given);
  const int64_t columns = x.dim(1);
  const Tensor rows = rows_of_plan(plan, x, columns);
  if (rows.numel() == 0 || only_counts(x.device())) return rows;
  visit_device_float(x.dtype(), [&]<class T>() {
    const auto launch = [&]<int N>() {
      const int64_t packs = rows.numel() / N;
      const auto blocks = static_cast<unsigned>((packs + kThreads - 1) / kThreads);
      gather_rows<T, N><<<blocks, kThreads, 0, device::stream(x.device())>>>(
          plan.tokens(), static_cast<const T*>(x.raw()), columns, packs, static_cast<T*>(rows.raw()));
    };
    columns % kLanes<T> == 0 ? launch.template operator()<kLanes<T>>() : launch.template operator()<1>();
  });
  device::check_launch("gather_choices");
  return rows;
}

void sum_parts(const ExpertPlan& plan, const Tensor& parts, const Tensor& sums) {
  if (plan.rows == 0 || only_counts(sums.device())) return;
  add_parts<<<blocks_for(plan.rows), kThreads, 0, device::stream(sums.device())>>>(
      plan.places(), plan.rows, parts.data<float>(), static_cast<int>(parts.dim(1)), sums.data<float>());
  device::check_launch("sum_parts");
}

}  // namespace temper::backends
