// The forward pass: each task owns a block of queries of one document under one key head, and walks over the
// tiles of keys that it sees, keeping a running softmax (Milakov and Gimelshein, 2018; Dao et al., 2022).
#include "backends/onednn/attention/attention.h"

#include <cmath>
#include <limits>

#include "backends/floats.h"
#include "backends/onednn/tiles/packed_tile.h"
#include "base/threads/threads.h"
#include "ops/attention/attention.h"

namespace temper::backends {
namespace {

using ops::Attention;

// With few rows the keys' and values' way through memory costs most: they are read where they are.
constexpr int64_t kFewRows = 16;
constexpr int64_t kFewKeys = 64;

struct Task {
  Document document;
  int64_t kv_head, first, count;  // queries [first, first + count)
  bool few;                       // rows that are computed where keys and values lie
};

struct Running {
  Block q;
  float *y, *largest, *sum;  // y is not yet divided by sum
};

// Calls f(column, row, rows) for the parts of a tile of keys whose rows follow one another in memory.
template <class F>
void for_each_run(const Document& document, int64_t key, int64_t columns, const F& f) {
  if (document.pages == nullptr) return f(int64_t{0}, document.key + key, columns);
  const int64_t page_tokens = document.page_tokens;
  for (int64_t at = key; at < key + columns;) {
    const int64_t place = at % page_tokens, rows = std::min(page_tokens - place, key + columns - at);
    f(at - key, document.pages[at / page_tokens] * page_tokens + place, rows);
    at += rows;
  }
}

// Rows that are read soon: pages lie anywhere, so that the processor does not foresee them.
void fetch(const Block& rows, int64_t count, int64_t size) {
  constexpr int64_t kLine = 64;
  const int64_t step = rows.stride * size_of(rows.dtype), bytes = size * size_of(rows.dtype);
  const auto* at = static_cast<const std::byte*>(rows.data);
  for (int64_t row = 0; row < count; ++row, at += step)
    for (int64_t byte = 0; byte < bytes; byte += kLine) __builtin_prefetch(at + byte);
}

// Of `next` keys behind those of the scores the keys are asked for.
void step_few(const Attention& op, const Task& task, int64_t key, const Scores& scores, const Running& state,
              int64_t next) {
  const int64_t value_dim = op.v.dim(2), dim = op.q.dim(2);
  // Each sum of a short dot by itself costs more than several together.
  constexpr int64_t kShort = 128;
  const bool tiles = op.k.dtype() == DType::kF32 && dim <= kShort && has_packed_tile(DType::kF32);
  for_each_run(task.document, key, scores.columns, [&](int64_t column, int64_t row, int64_t rows) {
    const Block keys = heads_at(op.k, row, task.kv_head);
    fetch(heads_at(op.v, row, task.kv_head), rows, value_dim);
    if (tiles)
      return short_dots({.a = matrix_of(state.q),
                         .b = transposed(matrix_of(keys)),
                         .m = scores.rows,
                         .n = rows,
                         .k = dim,
                         .c = scores.data + column,
                         .stride = scores.stride});
    dot_rows({.x = state.q,
              .rows = scores.rows,
              .size = dim,
              .weight = keys,
              .y = {scores.data + column, DType::kF32, scores.stride}},
             0, rows);
  });
  if (next > 0)
    for_each_run(task.document, key + scores.columns, next, [&](int64_t, int64_t row, int64_t rows) {
      fetch(heads_at(op.k, row, task.kv_head), rows, dim);
    });
  softmax_step(scores, state.largest, state.sum, state.y, value_dim);
  for_each_run(task.document, key, scores.columns, [&](int64_t column, int64_t row, int64_t rows) {
    Scores part = scores;
    part.data += column;
    part.columns = rows;
    mix_rows(part, heads_at(op.v, row, task.kv_head), state.y, value_dim);
  });
}

// The first step writes y, which need not be there before.
void step_many(const Attention& op, const Block& keys, const Block& values, const Scores& scores,
               const Running& state, float* rounded, bool first) {
  const int64_t value_dim = op.v.dim(2);
  multiply(Tile{.a = matrix_of(state.q),
                .b = transposed(matrix_of(keys)),
                .m = scores.rows,
                .n = scores.columns,
                .k = op.q.dim(2),
                .c = scores.data,
                .stride = scores.stride});
  softmax_step(scores, state.largest, state.sum, state.y, value_dim);
  const Block weights{scores.data, DType::kF32, scores.stride};
  multiply(Tile{.a = as_operand(weights, state.q.dtype, scores.rows, scores.columns, rounded),
                .b = matrix_of(values),
                .m = scores.rows,
                .n = value_dim,
                .k = scores.columns,
                .c = state.y,
                .stride = value_dim,
                .accumulate = !first});
}

// Divides by the softmax's sums and writes y and lse.
void finish(const Attention& op, const Task& task, const Running& state, const Attention::Output& out) {
  const int64_t group = group_of(op), dim = op.v.dim(2), rows = task.count * group;
  const int64_t token = task.document.query + task.first, head = task.kv_head * group;
  for (int64_t r = 0; r < rows; ++r) {
    if (out.lse.defined())
      out.lse.data<float>()[(head + r % group) * op.q.dim(0) + token + r / group] =
          state.largest[r] + std::log(state.sum[r]);
    state.sum[r] = 1 / state.sum[r];
  }
  scale_rows(state.y, rows, dim, state.sum);
  copy_block({state.y, DType::kF32, group * dim}, heads_at(out.y, token, head), task.count, group * dim);
}

int64_t keys_at_once(const Task& task) { return task.few ? kFewKeys : kTileKeys; }

// That pages may part, in tiles that need them together.
int64_t copied_keys(const Task& task) { return task.few || task.document.pages == nullptr ? 0 : kTileKeys; }

int64_t stride_of(const Task& task) { return task.few ? kFewKeys : score_stride(task.document.keys); }

// Of a task.
int64_t floats_of(const Attention& op, const Task& task) {
  const int64_t rows = task.count * group_of(op), copied = copied_keys(task);
  return rows * (op.q.dim(2) + op.v.dim(2) + 2 * stride_of(task) + 2) + copied * (op.k.dim(2) + op.v.dim(2));
}

// A sink is there before all keys, with nothing to mix.
void begin_softmax(const Attention& op, int64_t kv_head, int64_t rows, const Running& state) {
  std::fill_n(state.largest, rows, -std::numeric_limits<float>::infinity());
  std::fill_n(state.sum, rows, op.sinks.defined() ? 1.0f : 0.0f);
  if (!op.sinks.defined()) return;
  const int64_t group = group_of(op);
  const float* const sinks = op.sinks.data<float>() + kv_head * group;
  for (int64_t r = 0; r < rows; ++r) state.largest[r] = sinks[r % group];
}

void run_task(const Attention& op, const Task& task, const Attention::Output& out) {
  const int64_t group = group_of(op), dim = op.q.dim(2), value_dim = op.v.dim(2);
  const int64_t rows = task.count * group, stride = stride_of(task);
  const Document& document = task.document;
  const DType dtype = task.few ? DType::kF32 : operand_dtype(op);
  Scratch scratch(floats_of(op, task));
  const Running state{{scratch.take(rows * dim), dtype, dim},
                      scratch.take(rows * value_dim),
                      scratch.take(rows),
                      scratch.take(rows)};
  float *scores = scratch.take(rows * stride), *rounded = scratch.take(rows * stride);
  const int64_t copied = copied_keys(task);
  float *key_copy = scratch.take(copied * dim), *value_copy = scratch.take(copied * value_dim);
  if (task.few) std::fill_n(state.y, rows * value_dim, 0.0f);
  begin_softmax(op, task.kv_head, rows, state);
  copy_block(heads_at(op.q, document.query + task.first, task.kv_head * group),
             {state.q.data, dtype, group * dim}, task.count, group * dim);

  const int64_t position = task.first + document.offset(),
                end = op.causal ? position + task.count : document.keys;
  // Tiles begin at the same keys whatever the task's first query is: sums are then the same.
  const int64_t seen = op.window > 0 ? std::max<int64_t>(0, position - op.window + 1) : 0,
                begin = seen / keys_at_once(task) * keys_at_once(task);
  for (int64_t key = begin; key < end; key += keys_at_once(task)) {
    const int64_t columns = std::min(keys_at_once(task), end - key);
    const Scores part{scores, rows,      columns, stride, seen_from(op, document, position, key),
                      group,  op.window, op.scale};
    if (task.few) {
      step_few(op, task, key, part, state, std::min(keys_at_once(task), end - key - columns));
      continue;
    }
    const Block keys = tile_at(op.k, document, key, columns, task.kv_head, key_copy),
                values = tile_at(op.v, document, key, columns, task.kv_head, value_copy);
    step_many(op, keys, values, part, state, rounded, key == begin);
  }
  finish(op, task, state, out);
}

std::vector<Task> tasks_of(const Attention& op, const std::vector<Document>& documents, bool few) {
  std::vector<Task> tasks;
  const int64_t per_tile = queries_per_tile(op);
  for (const Document& document : documents)
    for (int64_t kv_head = 0; kv_head < op.k.dim(1); ++kv_head)
      for (int64_t first = 0; first < document.queries; first += per_tile) {
        const int64_t count = std::min(per_tile, document.queries - first);
        tasks.push_back({document, kv_head, first, count, few && count * group_of(op) <= kFewRows});
      }
  return tasks;
}

// In float32 a token has the same bits wherever its document is cut, as long as tiles add up alike.
bool reads_few(const Attention& op) { return op.q.dtype() != DType::kF32 || !sums_alike(DType::kF32); }

Attention::Output outline_forward(const Attention& op, bool want_lse) {
  const Attention::Output out = ops::outline<Attention>().forward(op, want_lse);
  hold_tasks(op, documents_of(op), reads_few(op));
  return out;
}

Attention::Output forward(const Attention& op, bool want_lse) {
  return attend(op, documents_of(op), want_lse, reads_few(op));
}

}  // namespace

Block tile_at(const Tensor& all, const Document& document, int64_t key, int64_t columns, int64_t head,
              float* copy) {
  const Block together{copy, all.dtype(), all.dim(2)};
  Block tile = together;
  for_each_run(document, key, columns, [&](int64_t column, int64_t row, int64_t rows) {
    const Block run = heads_at(all, row, head);
    if (rows == columns)
      tile = run;
    else
      copy_block(run, block_at(together, column, 0), rows, all.dim(2));
  });
  return tile;
}

void hold_tasks(const Attention& op, const std::vector<Document>& documents, bool few) {
  std::vector<int64_t> bytes;
  for (const Task& task : tasks_of(op, documents, few))
    bytes.push_back(TaskMemory::pooled_bytes(floats_of(op, task)));
  hold_largest(std::move(bytes), op.q.device());
}

Attention::Output attend(const Attention& given, const std::vector<Document>& documents, bool want_lse,
                         bool few) {
  const Attention op = with_wide_sinks(given);
  Attention::Output out{Tensor::empty({op.q.dim(0), op.q.dim(1), op.v.dim(2)}, op.q.dtype()), {}};
  if (want_lse) out.lse = Tensor::empty({op.q.dim(1), op.q.dim(0)}, DType::kF32);
  const std::vector<Task> tasks = tasks_of(op, documents, few);
  parallel_for(static_cast<int64_t>(tasks.size()),
               [&](int64_t i) { run_task(op, tasks[static_cast<size_t>(i)], out); });
  return out;
}

void register_onednn_attention() {
  ops::kernels<Attention>().add("onednn", {.accepts = refuse_float16,
                                           .forward = forward,
                                           .backward = attention_backward,
                                           .traits = {.sees_all_keys = true},
                                           .outline = {outline_forward, outline_attention_backward}});
}

}  // namespace temper::backends
