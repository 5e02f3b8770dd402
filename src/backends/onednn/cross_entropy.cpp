#include <algorithm>
#include <cmath>
#include <vector>

#include "backends/floats.h"
#include "backends/onednn/logits.h"
#include "backends/onednn/tiles/blocks.h"
#include "backends/onednn/tiles/tile.h"
#include "base/threads/threads.h"
#include "ops/cross_entropy/cross_entropy.h"

namespace temper::backends {
namespace {

using ops::CrossEntropy;

constexpr int64_t kVocabBlock = 512;         // logits of one task
constexpr int64_t kLogitsBytes = 128 << 20;  // of one chunk of tokens: enough to use each weight 200 times
constexpr int64_t kMaxPieces = 32;           // partial sums of hidden's gradient

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t blocks_per_piece(int64_t blocks) { return ceil_div(blocks, kMaxPieces); }

// What all chunks share. Tokens without a target are left out: no product is spent on them.
struct Job {
  const CrossEntropy& op;
  std::vector<int32_t> kept;  // tokens that have a target
  double z = 0;               // Σ f lse²
  int64_t hidden, vocab, blocks;
  bool want_dhidden;
  GradTarget weight;
  CrossEntropy::Output out;
};

// A chunk of kept tokens: their rows of hidden and of logits side by side.
struct Chunk {
  int64_t first, count;
  Tensor hidden;    // [count, hidden]
  Tensor logits;    // [count, vocab] float32
  Tensor lse;       // [count] float32
  Tensor factors;   // [count] float32: of exp(logit - lse) in the gradient
  bool accumulate;  // the weight's gradient holds something already
};

int32_t token_of(const Job& job, const Chunk& chunk, int64_t row) {
  return job.kept[static_cast<size_t>(chunk.first + row)];
}

// Its row of the weight; of a part of the vocabulary that may be none of them.
int64_t target_of(const Job& job, const Chunk& chunk, int64_t row) {
  return job.op.targets.data<int32_t>()[token_of(job, chunk, row)] - job.op.ranks.first;
}

// Of a token's loss.
float factor_of(const CrossEntropy& op, int64_t token) {
  return op.factors.tokens.defined() ? op.factors.tokens.data<float>()[token] : 1;
}

float scale_of(const Job& job, const Chunk& chunk, int64_t row) {
  return job.op.factors.scale * factor_of(job.op, token_of(job, chunk, row));
}

void gather_hidden(const Job& job, const Chunk& chunk) {
  for (int64_t row = 0; row < chunk.count; ++row)
    copy_block(block_of(job.op.hidden, token_of(job, chunk, row)), block_of(chunk.hidden, row), 1,
               job.hidden);
}

// Of a row of logits.
struct Measured {
  float largest = 0;
  double sum = 0;    // of exp(logit - largest)
  float target = 0;  // the target's logit; 0 where it is not here
};

// Of the whole vocabulary, of which each rank has measured its part, in the order of the ranks.
void join_ranks(const Job& job, std::vector<Measured>& rows) {
  if (job.op.ranks.group == nullptr) return;
  const auto count = static_cast<int64_t>(rows.size());
  const Tensor own = Tensor::empty({count, 3}, DType::kF32, MemoryTag::kWorkspace);
  for (int64_t row = 0; row < count; ++row) {
    const Measured& measured = rows[static_cast<size_t>(row)];
    float* out = own.data<float>() + 3 * row;
    out[0] = measured.largest;
    out[1] = static_cast<float>(measured.sum);
    out[2] = measured.target;
  }
  const Tensor all = job.op.ranks.group->all_gather("softmax of the vocabulary", own);
  for (int64_t row = 0; row < count; ++row) {
    const auto of = [&](int rank) { return all.data<float>() + 3 * (rank * count + row); };
    Measured joined{of(0)[0], 0, 0};
    for (int rank = 1; rank < job.op.ranks.group->size(); ++rank)
      joined.largest = std::max(joined.largest, of(rank)[0]);
    for (int rank = 0; rank < job.op.ranks.group->size(); ++rank) {
      joined.sum += double{of(rank)[1]} * std::exp(double{of(rank)[0]} - joined.largest);
      joined.target += of(rank)[2];
    }
    rows[static_cast<size_t>(row)] = joined;
  }
}

// Fills the logits and, from each block's share, lse and nll.
void form_logits(Job& job, const Chunk& chunk) {
  std::vector<Softmax> shares(static_cast<size_t>(job.blocks * chunk.count));
  parallel_for(job.blocks, [&](int64_t block) {
    const int64_t begin = block * kVocabBlock, size = std::min(kVocabBlock, job.vocab - begin);
    float* logits = chunk.logits.data<float>() + begin;
    multiply(Tile{.a = rows_of(chunk.hidden),
                  .b = transpose_of(job.op.weight).block(0, begin),
                  .m = chunk.count,
                  .n = size,
                  .k = job.hidden,
                  .c = logits,
                  .stride = job.vocab});
    measure_rows(logits, chunk.count, size, job.vocab, &shares[static_cast<size_t>(block * chunk.count)]);
  });
  std::vector<Measured> rows(static_cast<size_t>(chunk.count));
  for (int64_t row = 0; row < chunk.count; ++row) {
    const auto share = [&](int64_t block) { return shares[static_cast<size_t>(block * chunk.count + row)]; };
    Measured& measured = rows[static_cast<size_t>(row)];
    measured.largest = share(0).largest;
    for (int64_t block = 1; block < job.blocks; ++block)
      measured.largest = std::max(measured.largest, share(block).largest);
    for (int64_t block = 0; block < job.blocks; ++block)
      measured.sum += share(block).sum * std::exp(double{share(block).largest} - measured.largest);
    if (const int64_t target = target_of(job, chunk, row); target >= 0 && target < job.vocab)
      measured.target = chunk.logits.data<float>()[row * job.vocab + target];
  }
  join_ranks(job, rows);
  for (int64_t row = 0; row < chunk.count; ++row) {
    const Measured& measured = rows[static_cast<size_t>(row)];
    const double lse = measured.largest + std::log(measured.sum);
    chunk.lse.data<float>()[row] = static_cast<float>(lse);
    job.z += factor_of(job.op, token_of(job, chunk, row)) * lse * lse;
    const double normalized = 1 + 2 * job.op.factors.z_loss * lse;
    chunk.factors.data<float>()[row] = static_cast<float>(scale_of(job, chunk, row) * normalized);
    job.out.nll.data<float>()[token_of(job, chunk, row)] = static_cast<float>(lse - measured.target);
  }
}

// The gradient of one block of logits, (softmax · (1 + 2 z_loss lse) - target) · scale · f: in their place,
// or rounded into `rounded` where the processor multiplies bfloat16.
Matrix differentiate(const Job& job, const Chunk& chunk, int64_t begin, int64_t size, Tensor& rounded) {
  const Block logits{chunk.logits.data<float>() + begin, DType::kF32, job.vocab};
  Block grad = logits;
  if (job.op.hidden.dtype() == DType::kBF16 && bf16_path() == Bf16Path::kNative) {
    rounded = Tensor::empty({chunk.count, size}, DType::kBF16, MemoryTag::kWorkspace);
    grad = block_of(rounded);
  }
  const auto* lse = chunk.lse.data<float>();
  const auto* factors = chunk.factors.data<float>();
  for (int64_t row = 0; row < chunk.count; ++row) {
    // A target's own gradient is formed before it is rounded.
    const int64_t target = target_of(job, chunk, row) - begin;
    const bool here = target >= 0 && target < size;
    const float logit = here ? static_cast<const float*>(logits.data)[row * job.vocab + target] : 0;
    const Block from = block_at(logits, row, 0), to = block_at(grad, row, 0);
    exponentiate_rows(from, to, 1, size, lse + row, factors + row);
    if (!here) continue;
    float value = std::exp(logit - lse[row]) * factors[row] - scale_of(job, chunk, row);
    copy_block({&value, DType::kF32, 0}, block_at(to, 0, target), 1, 1);
  }
  return {grad.data, grad.dtype, grad.stride, false};
}

// One block's products: its rows of the weight's gradient, and its share of hidden's into `sums`.
void multiply_gradients(const Job& job, const Chunk& chunk, int64_t begin, int64_t size, float* sums,
                        bool more) {
  Tensor rounded;
  const Matrix grad = differentiate(job, chunk, begin, size, rounded);
  if (job.weight.wanted()) {
    const WideBlock dweight(block_of(job.weight.buffer, begin), size, job.hidden, chunk.accumulate);
    multiply(Tile{.a = {grad.data, grad.dtype, grad.stride, true},
                  .b = rows_of(chunk.hidden),
                  .m = size,
                  .n = job.hidden,
                  .k = chunk.count,
                  .c = dweight.data(),
                  .stride = dweight.stride(),
                  .accumulate = chunk.accumulate});
    dweight.store();
  }
  if (job.want_dhidden)
    multiply(Tile{.a = grad,
                  .b = rows_of(job.op.weight).block(begin, 0),
                  .m = chunk.count,
                  .n = job.hidden,
                  .k = size,
                  .c = sums,
                  .stride = job.hidden,
                  .accumulate = more});
}

// A fixed number of pieces sum hidden's gradient over their blocks; then the pieces are added in order.
void form_gradients(const Job& job, const Chunk& chunk) {
  const int64_t per_piece = blocks_per_piece(job.blocks), pieces = ceil_div(job.blocks, per_piece);
  const int64_t size = chunk.count * job.hidden;
  const Tensor partial =
      Tensor::empty({pieces, job.want_dhidden ? size : 0}, DType::kF32, MemoryTag::kWorkspace);
  parallel_for(pieces, [&](int64_t piece) {
    float* sums = partial.data<float>() + piece * size * job.want_dhidden;
    const int64_t last = std::min(job.blocks, (piece + 1) * per_piece);
    for (int64_t block = piece * per_piece; block < last; ++block) {
      const int64_t begin = block * kVocabBlock, columns = std::min(kVocabBlock, job.vocab - begin);
      multiply_gradients(job, chunk, begin, columns, sums, block > piece * per_piece);
    }
  });
  if (!job.want_dhidden) return;
  parallel_for(chunk.count, [&](int64_t row) {
    float* sums = partial.data<float>() + row * job.hidden;
    add_column_sums({sums + size, DType::kF32, size}, pieces - 1, job.hidden, sums);
    copy_block({sums, DType::kF32, 0}, block_of(job.out.dhidden, token_of(job, chunk, row)), 1, job.hidden);
  });
}

int64_t rows_per_chunk(const CrossEntropy& op, int64_t count) {
  const int64_t most = std::max<int64_t>(16, kLogitsBytes / (4 * std::max<int64_t>(op.weight.dim(0), 1)));
  return ceil_div(count, std::max<int64_t>(1, ceil_div(count, most)));  // even chunks
}

// One for all chunks.
struct ChunkMemory {
  ChunkMemory(const CrossEntropy& op, int64_t rows) {
    const auto empty = [&](Shape shape, DType dtype) {
      return Tensor::empty(shape, dtype, MemoryTag::kWorkspace, op.hidden.device());
    };
    // Widened once per chunk where the products would widen it for every block.
    hidden =
        empty({rows, op.hidden.dim(1)}, bf16_path() == Bf16Path::kNative ? op.hidden.dtype() : DType::kF32);
    logits = empty({rows, op.weight.dim(0)}, DType::kF32);
    lse = empty({rows}, DType::kF32);
    factors = empty({rows}, DType::kF32);
  }
  Tensor hidden, logits, lse, factors;
};

// What one task of form_gradients() takes at most.
int64_t task_workspace(const CrossEntropy& op, int64_t rows, bool want_dhidden, const GradTarget& weight) {
  const int64_t size = op.hidden.dim(1), block = std::min(kVocabBlock, op.weight.dim(0));
  const bool rounds = op.hidden.dtype() == DType::kBF16 && bf16_path() == Bf16Path::kNative;
  const Matrix grad{nullptr, rounds ? DType::kBF16 : DType::kF32, block, false},
      hidden{nullptr, rounds ? DType::kBF16 : DType::kF32, size, false}, columns = rows_of(op.weight);
  const int64_t rounded = rounds ? rows * block * size_of(DType::kBF16) : 0;
  const auto of_tile = [&](const Matrix& a, const Matrix& b, int64_t m, int64_t k) {
    return workspace_of(Tile{.a = a, .b = b, .m = m, .n = size, .k = k, .stride = size, .accumulate = true});
  };
  int64_t most = 0;
  if (weight.wanted()) {
    const int64_t wide = weight.buffer.dtype() == DType::kF32 ? 0 : block * size * size_of(DType::kF32);
    Matrix transposed = grad;
    transposed.transposed = true;
    most = wide + of_tile(transposed, hidden, block, rows);
  }
  if (want_dhidden) most = std::max(most, of_tile(grad, columns, rows, block));
  return rounded + most;
}

CrossEntropy::Output outline_forward(const CrossEntropy& op, bool want_dhidden, const GradTarget& weight) {
  const CrossEntropy::Output out = ops::outline<CrossEntropy>().forward(op, want_dhidden, weight);
  const auto targets = op.targets.values<int32_t>();
  const int64_t count = std::count_if(targets.begin(), targets.end(),
                                      [](int32_t target) { return target != CrossEntropy::kIgnore; });
  const int64_t rows = rows_per_chunk(op, count), size = op.hidden.dim(1), vocab = op.weight.dim(0),
                blocks = ceil_div(vocab, kVocabBlock), pieces = ceil_div(blocks, blocks_per_piece(blocks));
  const ChunkMemory memory(op, rows);
  const auto hold = [&](int64_t bytes) {
    return Tensor::empty({bytes}, DType::kU8, MemoryTag::kWorkspace, op.hidden.device());
  };
  const Tile logits{.a = rows_of(memory.hidden),
                    .b = transpose_of(op.weight),
                    .m = rows,
                    .n = std::min(kVocabBlock, vocab),
                    .k = size,
                    .stride = vocab};
  hold(std::min<int64_t>(blocks, num_threads()) * workspace_of(logits));
  if (!want_dhidden && !weight.wanted()) return out;
  const Tensor partial = hold(want_dhidden ? pieces * rows * size * size_of(DType::kF32) : 0);
  hold(std::min<int64_t>(pieces, num_threads()) * task_workspace(op, rows, want_dhidden, weight));
  return out;
}

Job start(const CrossEntropy& op, bool want_dhidden, const GradTarget& weight) {
  const int64_t tokens = op.targets.numel(), vocab = op.weight.dim(0);
  Job job{op, {}, 0, op.hidden.dim(1), vocab, ceil_div(vocab, kVocabBlock), want_dhidden, weight, {}};
  for (int64_t t = 0; t < tokens; ++t)
    if (op.targets.data<int32_t>()[t] != CrossEntropy::kIgnore) job.kept.push_back(static_cast<int32_t>(t));
  job.out.loss = Tensor::empty({1}, DType::kF32);
  job.out.nll = Tensor::zeros({tokens}, DType::kF32);
  if (want_dhidden) job.out.dhidden = Tensor::zeros(op.hidden.shape(), op.hidden.dtype());
  if (weight.wanted() && !weight.accumulate && job.kept.empty()) weight.buffer.fill_zero();
  return job;
}

CrossEntropy::Output forward(const CrossEntropy& op, bool want_dhidden, const GradTarget& weight) {
  Job job = start(op, want_dhidden, weight);
  const int64_t count = static_cast<int64_t>(job.kept.size()), chunk_size = rows_per_chunk(op, count);
  const ChunkMemory memory(op, chunk_size);
  for (int64_t first = 0; first < count; first += chunk_size) {
    const Chunk chunk{
        first,          std::min(chunk_size, count - first), memory.hidden, memory.logits, memory.lse,
        memory.factors, weight.accumulate || first > 0};
    gather_hidden(job, chunk);
    form_logits(job, chunk);
    if (want_dhidden || weight.wanted()) form_gradients(job, chunk);
  }
  double sum = 0;
  for (int64_t t = 0; t < job.out.nll.numel(); ++t)
    sum += double{factor_of(op, t)} * job.out.nll.data<float>()[t];
  const double z = op.factors.scale * (op.factors.z_loss * job.z);
  job.out.loss.data<float>()[0] = static_cast<float>(sum * op.factors.scale + z);
  if (op.factors.z_loss != 0) job.out.z = Tensor::from(std::vector<float>{static_cast<float>(z)});
  return job.out;
}

}  // namespace

void register_onednn_cross_entropy() {
  ops::kernels<CrossEntropy>().add("onednn", {.accepts = refuse_float16,
                                              .forward = forward,
                                              .backward = nullptr,
                                              .outline = {.forward = outline_forward}});
}

}  // namespace temper::backends
