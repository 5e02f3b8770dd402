#pragma once
#include <algorithm>
#include <bit>
#include <functional>
#include <numeric>
#include <vector>

#include "backends/onednn/tiles/blocks.h"
#include "backends/onednn/tiles/scores.h"
#include "backends/onednn/tiles/task_memory.h"
#include "backends/onednn/tiles/tile.h"
#include "base/threads/threads.h"
#include "ops/attention/attention.h"

// What attention's two directions share.
namespace temper::backends {

constexpr int64_t kRowsOfGroup = 256;  // queries times the heads of a group
constexpr int64_t kTileKeys = 256;
constexpr int64_t kScoreStride = kTileKeys + 16;  // rows of a power of two share cache sets

// Queries and keys of one document; query i stands at key i + offset. Keys and values are the rows from `key`
// on, or those of pages of `page_tokens` rows each.
struct Document {
  int64_t query, queries, key, keys;
  const int32_t* pages = nullptr;
  int64_t page_tokens = 0;
  int64_t offset() const { return keys - queries; }
};

// How many of the keys from `key` on a query sees, of those up to the one at `position` (Scores::seen): all
// where attention is not causal.
inline int64_t seen_from(const ops::Attention& op, const Document& document, int64_t position, int64_t key) {
  return (op.causal ? position + 1 : document.keys) - key;
}

inline std::vector<Document> documents_of(const ops::Attention& op) {
  const int32_t *q = op.cu_seqlens_q.data<int32_t>(), *k = op.cu_seqlens_k.data<int32_t>();
  std::vector<Document> documents;
  for (int64_t d = 0; d + 1 < op.cu_seqlens_q.numel(); ++d)
    documents.push_back({q[d], q[d + 1] - q[d], k[d], k[d + 1] - k[d]});
  return documents;
}

inline int64_t group_of(const ops::Attention& op) { return op.q.dim(1) / op.k.dim(1); }
inline int64_t queries_per_tile(const ops::Attention& op) {
  return std::max<int64_t>(1, kRowsOfGroup / group_of(op));
}

// The same op with sinks of float32.
inline ops::Attention with_wide_sinks(ops::Attention op) {
  if (op.sinks.defined()) op.sinks = op.sinks.to(DType::kF32, MemoryTag::kWorkspace);
  return op;
}

// The rows of [tokens, heads, dim] from a token on, each from a head on.
inline Block heads_at(const Tensor& tensor, int64_t token, int64_t head) {
  const int64_t offset = token * tensor.stride(0) + head * tensor.dim(2);
  return {static_cast<std::byte*>(tensor.raw()) + offset * size_of(tensor.dtype()), tensor.dtype(),
          tensor.stride(0)};
}

// Of [tokens, heads, dim], a head's rows of a tile of keys, or values: where they lie, or together in `copy`
// where pages part them.
Block tile_at(const Tensor& all, const Document& document, int64_t key, int64_t columns, int64_t head,
              float* copy);

inline Matrix matrix_of(const Block& block) { return {block.data, block.dtype, block.stride, false}; }

// What queries, probabilities and their gradients are held in between products of many rows: bfloat16 where
// the processor multiplies it.
inline DType operand_dtype(const ops::Attention& op) {
  return op.q.dtype() == DType::kBF16 && bf16_path() == Bf16Path::kNative ? DType::kBF16 : DType::kF32;
}

// The block as an operand of that dtype: where it is, or rounded into `scratch`.
inline Matrix as_operand(const Block& block, DType dtype, int64_t rows, int64_t size, float* scratch) {
  if (block.dtype == dtype) return matrix_of(block);
  const Block to{scratch, dtype, block.stride};
  copy_block(block, to, rows, size);
  return matrix_of(to);
}

// Hands out parts of a task's memory.
class Scratch {
 public:
  explicit Scratch(int64_t floats) : memory_(floats), size_(floats) {}
  float* take(int64_t floats) {
    float* part = memory_.data() + used_;
    used_ += floats;
    invariant(used_ <= size_, "attention's scratch is too small");
    return part;
  }

 private:
  TaskMemory memory_;
  int64_t size_, used_ = 0;
};

// Rows of scores: as long as a tile of keys, or as all there are.
inline int64_t score_stride(int64_t keys) {
  constexpr int64_t kLine = 16;
  const int64_t stride = (keys + kLine - 1) / kLine * kLine + kLine;
  return std::min(kScoreStride, std::has_single_bit(static_cast<uint64_t>(stride)) ? stride + kLine : stride);
}

// For outlines: allocates the memory of the largest tasks, as many as can run at once.
inline void hold_largest(std::vector<int64_t> bytes_of_tasks, Device device) {
  const size_t count = std::min(bytes_of_tasks.size(), static_cast<size_t>(num_threads()));
  const auto end = bytes_of_tasks.begin() + static_cast<std::ptrdiff_t>(count);
  std::partial_sort(bytes_of_tasks.begin(), end, bytes_of_tasks.end(), std::greater<>());
  Tensor::empty({std::accumulate(bytes_of_tasks.begin(), end, int64_t{0})}, DType::kU8, MemoryTag::kWorkspace,
                device);
}

// The forward pass. `few`: rows of tasks that have few are computed where keys and values lie, which is
// sooner done, but sums have another order then than in other tasks.
ops::Attention::Output attend(const ops::Attention& op, const std::vector<Document>& documents, bool want_lse,
                              bool few);
// For outlines: allocates the memory of its tasks, without the results.
void hold_tasks(const ops::Attention& op, const std::vector<Document>& documents, bool few);

ops::Attention::Grads outline_attention_backward(const ops::Attention& op, const ops::Attention::Output& out,
                                                 const Tensor& dy);
ops::Attention::Grads attention_backward(const ops::Attention& op, const ops::Attention::Output& out,
                                         const Tensor& dy);

}  // namespace temper::backends
