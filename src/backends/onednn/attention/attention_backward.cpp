// The backward pass: each task owns every n-th block of keys of one document under one key head, so it alone
// writes their gradients, and sums the queries' gradient into a part of its own. The parts are added in
// order; a document of one block needs none.
#include <array>
#include <cmath>
#include <cstring>

#include "backends/onednn/attention/attention.h"
#include "base/threads/threads.h"

namespace temper::backends {
namespace {

using ops::Attention;

struct Backward {
  const Attention& op;
  const Attention::Output& out;
  const Tensor& dy;
  Attention::Grads grads;
  int64_t group, dim, value_dim, parts;
  Tensor delta;  // [heads, tokens]: dy · y
  Tensor dq;     // [parts, kv_heads, tokens, group, dim] float32
  Tensor rests;  // [parts, heads, tokens] float32: Σ of the scores' gradients; undefined without sinks
};

// How many tasks share a document under one key head: by shape alone, enough to keep many cores busy.
int64_t parts_for(const Attention& op, const std::vector<Document>& documents) {
  constexpr int64_t kEnoughTasks = 32, kMostParts = 8, kKeysPerPart = 1024;
  int64_t longest = 0;
  for (const Document& document : documents) longest = std::max(longest, document.keys);
  const int64_t tasks = std::max<int64_t>(1, static_cast<int64_t>(documents.size()) * op.k.dim(1));
  return std::clamp<int64_t>(std::min(kEnoughTasks / tasks, longest / kKeysPerPart), 1, kMostParts);
}

int64_t blocks_of(const Document& document) { return (document.keys + kTileKeys - 1) / kTileKeys; }

int64_t rows_at_once(const Attention& op, const Document& document) {
  return std::min(queries_per_tile(op), document.queries) * group_of(op);
}

// deltas, sums of dq and rests, which are there for the whole pass.
std::array<Tensor, 3> sums_of(const Attention& op, int64_t parts) {
  const auto floats = [&](Shape shape) {
    return Tensor::empty(shape, DType::kF32, MemoryTag::kWorkspace, op.q.device());
  };
  return {floats({op.q.dim(1), op.q.dim(0)}), floats({parts, op.q.numel()}),
          op.sinks.defined() ? floats({parts, op.q.dim(1), op.q.dim(0)}) : Tensor()};
}

float* dq_part(const Backward& pass, int64_t part, int64_t kv_head, int64_t token) {
  const int64_t tokens = pass.op.q.dim(0);
  return pass.dq.data<float>() +
         ((part * pass.op.k.dim(1) + kv_head) * tokens + token) * pass.group * pass.dim;
}

// Memory of one task, whose keys stay while queries pass by.
struct Buffers {
  DType dtype;     // of queries and their output's gradient; scores become it
  int64_t stride;  // of scores
  Scratch scratch;
  float *q, *dy, *dq, *p, *dp, *rounded_p, *rounded_dp, *lse, *delta, *dk, *dv;
  static int64_t floats(const Attention& op, int64_t rows, int64_t keys) {
    const int64_t dim = op.q.dim(2), value_dim = op.v.dim(2);
    return rows * (2 * dim + value_dim + 4 * score_stride(keys) + 2) + keys * (dim + value_dim);
  }
  Buffers(const Attention& op, int64_t rows, int64_t keys)
      : dtype(operand_dtype(op)), stride(score_stride(keys)), scratch(floats(op, rows, keys)) {
    const int64_t dim = op.q.dim(2), value_dim = op.v.dim(2);
    q = scratch.take(rows * dim);
    dy = scratch.take(rows * value_dim);
    dq = scratch.take(rows * dim);
    for (float** part : {&p, &dp, &rounded_p, &rounded_dp}) *part = scratch.take(rows * stride);
    for (float** part : {&lse, &delta}) *part = scratch.take(rows);
    dk = scratch.take(keys * dim);
    dv = scratch.take(keys * value_dim);
  }
};

struct Keys {
  Matrix k, v;
  int64_t first, count;
};

void load_queries(const Backward& pass, int64_t token, int64_t count, int64_t kv_head, const Buffers& to) {
  const int64_t size = pass.group * pass.dim, value_size = pass.group * pass.value_dim;
  const int64_t head = kv_head * pass.group, tokens = pass.op.q.dim(0);
  copy_block(heads_at(pass.op.q, token, head), {to.q, to.dtype, size}, count, size);
  copy_block(heads_at(pass.dy, token, head), {to.dy, to.dtype, value_size}, count, value_size);
  for (int64_t r = 0; r < count * pass.group; ++r) {
    const int64_t at = (head + r % pass.group) * tokens + token + r / pass.group;
    to.lse[r] = pass.out.lse.data<float>()[at];
    to.delta[r] = pass.delta.data<float>()[at];
  }
}

// What a tile adds to, or writes if nothing has been added yet.
struct Sums {
  float* dq;
  float* rests;  // of the first query's first head; null without sinks
  bool dq_begun, dkv_begun;
};

void add_rests(const Backward& pass, const float* dp, int64_t rows, int64_t columns, int64_t stride,
               float* rests) {
  for (int64_t r = 0; r < rows; ++r) {
    float sum = 0;
    for (int64_t c = 0; c < columns; ++c) sum += dp[r * stride + c];
    rests[r % pass.group * pass.op.q.dim(0) + r / pass.group] += sum;
  }
}

// One tile: dk, dv and the queries' part.
void run_tile(const Backward& pass, const Document& document, const Keys& keys, int64_t first, int64_t count,
              const Buffers& buffers, const Sums& sums) {
  const int64_t rows = count * pass.group, dim = pass.dim, value_dim = pass.value_dim;
  const int64_t position = first + document.offset();
  const int64_t columns =
      std::min(keys.count, seen_from(pass.op, document, position + count - 1, keys.first));
  const Matrix q{buffers.q, buffers.dtype, dim}, dy{buffers.dy, buffers.dtype, value_dim};
  multiply(Tile{q, transposed(keys.k), rows, columns, dim, buffers.p, buffers.stride});
  multiply(Tile{dy, transposed(keys.v), rows, columns, value_dim, buffers.dp, buffers.stride});
  softmax_backward(
      {buffers.p, rows, columns, buffers.stride, seen_from(pass.op, document, position, keys.first),
       pass.group, pass.op.window, pass.op.scale},
      buffers.dp, buffers.lse, buffers.delta);
  if (sums.rests != nullptr) add_rests(pass, buffers.dp, rows, columns, buffers.stride, sums.rests);
  const auto operand = [&](float* scores, float* rounded) {
    return as_operand({scores, DType::kF32, buffers.stride}, buffers.dtype, rows, columns, rounded);
  };
  const Matrix p = operand(buffers.p, buffers.rounded_p), dp = operand(buffers.dp, buffers.rounded_dp);
  multiply(Tile{transposed(p), dy, columns, value_dim, rows, buffers.dv, value_dim, sums.dkv_begun});
  multiply(Tile{transposed(dp), q, columns, dim, rows, buffers.dk, dim, sums.dkv_begun});
  multiply(Tile{dp, keys.k, rows, dim, columns, sums.dq, dim, sums.dq_begun});
}

// The queries of a document that see keys of a block.
struct Seeing {
  Seeing(const Backward& pass, const Document& document, int64_t first_key, int64_t keys)
      : begin(pass.op.causal ? std::max<int64_t>(0, first_key - document.offset()) : 0),
        end(document.queries) {
    if (pass.op.window > 0) end = std::min(end, first_key + keys - 1 - document.offset() + pass.op.window);
  }
  int64_t begin, end;
};

// Whether one block of keys gives all of each query's gradient, so that no sums are kept for later.
bool is_one_block(const Backward& pass, const Document& document) {
  if (blocks_of(document) != 1) return false;
  const Seeing seeing(pass, document, 0, document.keys);
  return seeing.begin == 0 && seeing.end == document.queries;
}

void run_keys(const Backward& pass, const Document& document, int64_t kv_head, int64_t part,
              int64_t first_key, Buffers& buffers) {
  const int64_t dim = pass.dim, value_dim = pass.value_dim, size = pass.group * dim;
  const int64_t token = document.key + first_key;
  const int64_t count = std::min(kTileKeys, document.keys - first_key);
  const Keys keys{matrix_of(heads_at(pass.op.k, token, kv_head)),
                  matrix_of(heads_at(pass.op.v, token, kv_head)), first_key, count};
  const Seeing seeing(pass, document, first_key, count);
  const int64_t step = queries_per_tile(pass.op);
  // What the first tile does not write all of has to be there before.
  const int64_t last = std::min(seeing.end, seeing.begin + step) + document.offset() - 1;
  bool begun = seeing.begin >= seeing.end || seen_from(pass.op, document, last, first_key) < count;
  if (begun) {
    std::fill_n(buffers.dk, count * dim, 0.0f);
    std::fill_n(buffers.dv, count * value_dim, 0.0f);
  }
  const bool alone = is_one_block(pass, document);
  for (int64_t first = seeing.begin; first < seeing.end; first += step, begun = true) {
    const int64_t queries = std::min(step, seeing.end - first), query = document.query + first;
    load_queries(pass, query, queries, kv_head, buffers);
    float* const dq = alone ? buffers.dq : dq_part(pass, part, kv_head, query);
    float* const rests = pass.rests.defined()
                             ? pass.rests.data<float>() +
                                   (part * pass.op.q.dim(1) + kv_head * pass.group) * pass.op.q.dim(0) + query
                             : nullptr;
    run_tile(pass, document, keys, first, queries, buffers, {dq, rests, !alone, begun});
    if (alone)
      copy_block({dq, DType::kF32, size}, heads_at(pass.grads.q, query, kv_head * pass.group), queries, size);
  }
  copy_block({buffers.dk, DType::kF32, dim}, heads_at(pass.grads.k, token, kv_head), count, dim);
  copy_block({buffers.dv, DType::kF32, value_dim}, heads_at(pass.grads.v, token, kv_head), count, value_dim);
}

void run_part(const Backward& pass, const Document& document, int64_t kv_head, int64_t part) {
  if (part >= blocks_of(document)) return;
  if (!is_one_block(pass, document))
    std::fill_n(dq_part(pass, part, kv_head, document.query), document.queries * pass.group * pass.dim, 0.0f);
  Buffers buffers(pass.op, rows_at_once(pass.op, document), std::min(kTileKeys, document.keys));
  // Early keys are seen by more queries than late ones: every n-th block shares the work evenly.
  for (int64_t block = part; block < blocks_of(document); block += pass.parts)
    run_keys(pass, document, kv_head, part, block * kTileKeys, buffers);
}

void add_parts(const Backward& pass, const Document& document, int64_t kv_head) {
  if (is_one_block(pass, document)) return;
  const int64_t size = pass.group * pass.dim, parts = std::min(pass.parts, blocks_of(document));
  const int64_t part_stride = pass.op.q.numel();
  float* sums = dq_part(pass, 0, kv_head, document.query);
  add_column_sums({sums + part_stride, DType::kF32, part_stride}, parts - 1, document.queries * size, sums);
  copy_block({sums, DType::kF32, size}, heads_at(pass.grads.q, document.query, kv_head * pass.group),
             document.queries, size);
}

void form_delta(const Backward& pass) {
  const int64_t heads = pass.op.q.dim(1), tokens = pass.op.q.dim(0);
  parallel_for(heads, [&](int64_t head) {
    dot_pairs(heads_at(pass.dy, 0, head), heads_at(pass.out.y, 0, head), tokens, pass.value_dim,
              pass.delta.data<float>() + head * tokens);
  });
}

// Of a weight that mixes nothing: -Σ exp(sink - lse) Σ p dp over the tokens of each head. Few terms may
// cancel each other, so that rounding of y in delta = dy · y would show: what the scores' gradients, scale p
// (dp - delta), leave is what delta lacks.
void sum_sinks(const Backward& pass) {
  const Attention op = with_wide_sinks(pass.op);
  const int64_t heads = op.q.dim(1), tokens = op.q.dim(0);
  parallel_for(heads, [&](int64_t head) {
    const float sink = op.sinks.data<float>()[head];
    const float *const lse = pass.out.lse.data<float>() + head * tokens, *const delta =
                                                                             pass.delta.data<float>() +
                                                                             head * tokens;
    double sum = 0;
    for (int64_t t = 0; t < tokens; ++t) {
      const double weight = std::exp(static_cast<double>(sink) - static_cast<double>(lse[t]));
      double rest = 0;
      for (int64_t part = 0; part < pass.parts; ++part)
        rest += static_cast<double>(pass.rests.data<float>()[(part * heads + head) * tokens + t]);
      sum -= weight * (static_cast<double>(delta[t]) * (1 - weight) + rest / static_cast<double>(op.scale));
    }
    pass.grads.sinks.data<float>()[head] = static_cast<float>(sum);
  });
}

}  // namespace

Attention::Grads outline_attention_backward(const Attention& op, const Attention::Output& out,
                                            const Tensor& dy) {
  const std::vector<Document> documents = documents_of(op);
  const int64_t parts = parts_for(op, documents);
  const auto sums = sums_of(op, parts);
  const Attention::Grads grads = ops::outline<Attention>().backward(op, out, dy);
  std::vector<int64_t> bytes;
  for (const Document& document : documents) {
    const int64_t each = TaskMemory::pooled_bytes(
        Buffers::floats(op, rows_at_once(op, document), std::min(kTileKeys, document.keys)));
    bytes.insert(bytes.end(), static_cast<size_t>(op.k.dim(1) * std::min(parts, blocks_of(document))), each);
  }
  hold_largest(std::move(bytes), op.q.device());
  return grads;
}

Attention::Grads attention_backward(const Attention& op, const Attention::Output& out, const Tensor& dy) {
  const std::vector<Document> documents = documents_of(op);
  const int64_t kv_heads = op.k.dim(1), count = static_cast<int64_t>(documents.size());
  const int64_t parts = parts_for(op, documents);
  const auto [deltas, sums, rests] = sums_of(op, parts);
  if (rests.defined()) rests.fill_zero();
  const Backward pass{op,
                      out,
                      dy,
                      {Tensor::empty(op.q.shape(), op.q.dtype()), Tensor::empty(op.k.shape(), op.k.dtype()),
                       Tensor::empty(op.v.shape(), op.v.dtype()),
                       op.sinks.defined() ? Tensor::empty(op.sinks.shape(), DType::kF32) : Tensor()},
                      group_of(op),
                      op.q.dim(2),
                      op.v.dim(2),
                      parts,
                      deltas,
                      sums,
                      rests};
  form_delta(pass);
  parallel_for(count * kv_heads * parts, [&](int64_t i) {
    const int64_t pair = i / parts;
    run_part(pass, documents[static_cast<size_t>(pair / kv_heads)], pair % kv_heads, i % parts);
  });
  parallel_for(count * kv_heads, [&](int64_t i) {
    add_parts(pass, documents[static_cast<size_t>(i / kv_heads)], i % kv_heads);
  });
  if (op.sinks.defined()) sum_sinks(pass);
  return pass.grads;
}

}  // namespace temper::backends
