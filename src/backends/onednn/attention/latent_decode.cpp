// Each task has a few heads of one sequence, whose queries stay while the cache passes by once.
#include <limits>

#include "backends/floats.h"
#include "backends/onednn/attention/attention.h"
#include "ops/latent_decode/latent_decode.h"

namespace temper::backends {
namespace {

using ops::LatentDecode;

constexpr int64_t kHeads = 8, kKeys = 64;  // at once

struct LatentTask {
  Document document;  // a sequence
  int64_t head, heads;
};

int64_t low_of(const LatentDecode& op) { return op.a.defined() ? op.a.dim(0) : 0; }

// y [size] += Σ_i x[i] rows[i]
void add_rows(float* x, int64_t count, const Block& rows, int64_t size, float* y) {
  mix_rows({x, 1, count, count, count, 1, 0, 1}, rows, y, size);
}

// K_hᵀ q[h, : nope] of each head, next to what is left of q[h]. scratch: [dim + low].
void absorb(const LatentDecode& op, const LatentTask& task, float* scratch, float* absorbed) {
  const int64_t nope = op.nope_dim(), dim = op.q.dim(2), width = op.cache.dim(2), rank = op.rank();
  float *const query = scratch, *const low = scratch + dim;
  for (int64_t h = 0; h < task.heads; ++h) {
    const int64_t head = task.head + h, row = head * (nope + op.value_dim());
    copy_block(block_at({op.q.raw(), op.q.dtype(), dim}, task.document.query * op.q.dim(1) + head, 0),
               {query, DType::kF32, dim}, 1, dim);
    float* const to = absorbed + h * width;
    std::fill_n(to, rank, 0.0f);
    add_rows(query, nope, block_of(op.weight, row), rank, to);
    if (const int64_t size = low_of(op); size > 0) {
      std::fill_n(low, size, 0.0f);
      add_rows(query, nope, block_of(op.b, row), size, low);
      scale_rows(low, 1, size, &op.update_scale);
      add_rows(low, size, block_of(op.a), rank, to);
    }
    std::copy_n(query + nope, dim - nope, to + rank);
  }
}

// V_h of what the softmax mixed, [rank]. scratch: [2 value_dim + low].
void expand(const LatentDecode& op, int64_t head, float* mixed, float* scratch, const Block& to) {
  const int64_t value = op.value_dim(), rank = op.rank();
  const int64_t row = head * (op.nope_dim() + value) + op.nope_dim();
  const Block x{mixed, DType::kF32, rank}, y{scratch, DType::kF32, value};
  dot_rows({.x = x, .size = rank, .weight = block_of(op.weight, row), .y = y}, 0, value);
  if (const int64_t size = low_of(op); size > 0) {
    const Block update{scratch + value, DType::kF32, value}, low{scratch + 2 * value, DType::kF32, size};
    dot_rows({.x = x, .size = rank, .weight = block_of(op.a), .y = low}, 0, size);
    dot_rows({.x = low, .size = size, .weight = block_of(op.b, row), .y = update}, 0, value);
    for (int64_t i = 0; i < value; ++i) scratch[i] += op.update_scale * scratch[value + i];
  }
  copy_block(y, to, 1, value);
}

void run_task(const LatentDecode& op, const LatentTask& task, const Tensor& y) {
  const int64_t heads = task.heads, width = op.cache.dim(2), rank = op.rank(), value = op.value_dim();
  const int64_t of_head = std::max(op.q.dim(2), 2 * value) + low_of(op);
  const Tensor rows = op.cache.reshape({op.cache.dim(0) * op.cache.dim(1), 1, width});
  Scratch scratch(heads * (width + rank + kKeys + 2) + kKeys * width + of_head);
  float *const absorbed = scratch.take(heads * width), *const head_scratch = scratch.take(of_head);
  absorb(op, task, head_scratch, absorbed);
  float *const mixed = scratch.take(heads * rank), *const scores = scratch.take(heads * kKeys),
               *const largest = scratch.take(heads), *const sum = scratch.take(heads),
               *const copy = scratch.take(kKeys * width);
  std::fill_n(mixed, heads * rank, 0.0f);
  std::fill_n(largest, heads, -std::numeric_limits<float>::infinity());
  std::fill_n(sum, heads, 0.0f);
  for (int64_t key = 0; key < task.document.keys; key += kKeys) {
    const int64_t columns = std::min(kKeys, task.document.keys - key);
    const Block keys = tile_at(rows, task.document, key, columns, 0, copy);
    const Scores part{scores, heads, columns, kKeys, columns, heads, 0, op.scale};
    dot_rows({.x = {absorbed, DType::kF32, width},
              .rows = heads,
              .size = width,
              .weight = keys,
              .y = {scores, DType::kF32, kKeys}},
             0, columns);
    softmax_step(part, largest, sum, mixed, rank);
    mix_rows(part, keys, mixed, rank);
  }
  for (int64_t h = 0; h < heads; ++h) sum[h] = 1 / sum[h];
  scale_rows(mixed, heads, rank, sum);
  for (int64_t h = 0; h < heads; ++h) {
    const int64_t head = task.head + h;
    expand(op, head, mixed + h * rank, head_scratch,
           block_at({y.raw(), y.dtype(), value}, task.document.query * y.dim(1) + head, 0));
  }
}

Tensor forward(const LatentDecode& op) {
  ops::write_pages(op.cache, op.sequences, op.latent);
  const int64_t heads = op.q.dim(1);
  const Tensor y = Tensor::empty({op.q.dim(0), heads, op.value_dim()}, op.q.dtype());
  std::vector<LatentTask> tasks;
  for (int64_t s = 0; s < op.sequences.count(); ++s) {
    const Document document{s, 1, 0, op.sequences.length(s), op.sequences.pages_of(s), op.cache.dim(1)};
    for (int64_t head = 0; head < heads; head += kHeads)
      tasks.push_back({document, head, std::min(kHeads, heads - head)});
  }
  parallel_for(static_cast<int64_t>(tasks.size()),
               [&](int64_t i) { run_task(op, tasks[static_cast<size_t>(i)], y); });
  return y;
}

}  // namespace

void register_onednn_latent_decode() {
  ops::kernels<LatentDecode>().add("onednn",
                                   {.accepts = refuse_float16, .forward = forward, .batch_invariant = true});
}

}  // namespace temper::backends
