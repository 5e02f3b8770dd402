// Each task has a few heads of one sequence, whose queries stay while the cache passes by once.
#include <limits>

#include "backends/floats.h"
#include "backends/onednn/attention.h"
#include "backends/onednn/onednn.h"

namespace temper::backends {
namespace {

using ops::LatentDecode;

constexpr int64_t kHeads = 8, kKeys = 64;  // at once

struct Task {
  int64_t sequence, head, heads, keys;
};

// y[h] = K_hᵀ q[h, : nope], next to what is left of q[h].
void absorb(const LatentDecode& op, const Task& task, float* query, float* absorbed) {
  const int64_t nope = op.nope_dim(), dim = op.q.dim(2), width = op.cache.dim(2), rank = op.rank();
  const int64_t rows_per_head = nope + op.value_dim();
  for (int64_t h = 0; h < task.heads; ++h) {
    const int64_t head = task.head + h;
    copy_block(block_at({op.q.raw(), op.q.dtype(), dim}, task.sequence * op.q.dim(1) + head, 0),
               {query, DType::kF32, dim}, 1, dim);
    float* const to = absorbed + h * width;
    std::fill_n(to, rank, 0.0f);
    mix_rows({query, 1, nope, nope, nope, 1, 0, 1}, block_of(op.weight, head * rows_per_head), to, rank);
    std::copy_n(query + nope, dim - nope, to + rank);
  }
}

void run_task(const LatentDecode& op, const Task& task, const Tensor& y) {
  const int64_t heads = task.heads, width = op.cache.dim(2), rank = op.rank(), nope = op.nope_dim();
  Scratch scratch(heads * (width + rank + kKeys + 2) + op.q.dim(2));
  float* const absorbed = scratch.take(heads * width);
  absorb(op, task, scratch.take(op.q.dim(2)), absorbed);
  float *const mixed = scratch.take(heads * rank), *const scores = scratch.take(heads * kKeys),
               *const largest = scratch.take(heads), *const sum = scratch.take(heads);
  std::fill_n(mixed, heads * rank, 0.0f);
  std::fill_n(largest, heads, -std::numeric_limits<float>::infinity());
  std::fill_n(sum, heads, 0.0f);
  const Block cache = block_at({op.cache.raw(), op.cache.dtype(), width}, task.sequence * op.cache.dim(1), 0);
  for (int64_t key = 0; key < task.keys; key += kKeys) {
    const int64_t columns = std::min(kKeys, task.keys - key);
    const Block keys = block_at(cache, key, 0);
    const Scores part{scores, heads, columns, kKeys, columns, heads, 0, op.scale};
    dot_rows({absorbed, DType::kF32, width}, heads, keys, nullptr, width, {}, {scores, DType::kF32, kKeys}, 0,
             columns);
    softmax_step(part, largest, sum, mixed, rank);
    mix_rows(part, keys, mixed, rank);
  }
  for (int64_t h = 0; h < heads; ++h) sum[h] = 1 / sum[h];
  scale_rows(mixed, heads, rank, sum);
  const int64_t value = op.value_dim();
  for (int64_t h = 0; h < heads; ++h) {
    const int64_t head = task.head + h;
    dot_rows({mixed + h * rank, DType::kF32, rank}, 1, block_of(op.weight, head * (nope + value) + nope),
             nullptr, rank, {}, block_at({y.raw(), y.dtype(), value}, task.sequence * y.dim(1) + head, 0), 0,
             value);
  }
}

Tensor forward(const LatentDecode& op) {
  const std::vector<int32_t> lengths = ops::append_latents(op);
  const int64_t heads = op.q.dim(1);
  const Tensor y = Tensor::empty({op.q.dim(0), heads, op.value_dim()}, op.q.dtype());
  std::vector<Task> tasks;
  for (size_t s = 0; s < lengths.size(); ++s)
    for (int64_t head = 0; head < heads; head += kHeads)
      tasks.push_back({static_cast<int64_t>(s), head, std::min(kHeads, heads - head), lengths[s]});
  parallel_for(static_cast<int64_t>(tasks.size()),
               [&](int64_t i) { run_task(op, tasks[static_cast<size_t>(i)], y); });
  return y;
}

}  // namespace

ops::Kernel<LatentDecode> latent_decode_kernel() { return {.accepts = refuse_float16, .forward = forward}; }

}  // namespace temper::backends
