// Attention of training with the sums of paged_attention, bit for bit. Backward is another kernel's.
#include <algorithm>

#include "backends/cuda/attention/ordered_tiles.h"
#include "backends/gpu/attention_documents.h"
#include "backends/gpu/attention_operands.h"
#include "backends/gpu/attention_shapes.h"
#include "ops/attention/attention.h"
#include "tensor/host_inputs.h"

namespace temper::backends {
namespace {

using ops::Attention;

// Keys and values one behind the other: `sequence` is where those of the tile's document begin.
struct InRows {
  const PagedArguments& a;
  const PagedTile& tile;

  __device__ int place(int token) const { return tile.sequence + token; }
  __device__ int64_t key(int place, int kv_head) const { return place * a.k_stride + kv_head * a.dim; }
  __device__ int64_t value(int place, int kv_head) const { return place * a.v_stride + kv_head * a.dim; }
};

std::vector<PagedTile> tiles_of(const Packing& packing) {
  std::vector<PagedTile> tiles;
  for (const PackedDocument& d : packed_documents(op_of(packing)))
    for (int64_t first = 0; first < d.queries; first += kPagedTileRows)
      tiles.push_back({static_cast<int>(d.key), static_cast<int>(d.query + first),
                       static_cast<int>(d.keys - d.queries + first),
                       static_cast<int>(std::min<int64_t>(kPagedTileRows, d.queries - first))});
  // Those with most keys first, so that none is left over in the end.
  std::stable_sort(tiles.begin(), tiles.end(),
                   [](const PagedTile& a, const PagedTile& b) { return a.position > b.position; });
  return tiles;
}

int64_t length_of(const Packing& packing) {
  const Attention op = op_of(packing);
  return common_length(packed_documents(op), op);
}

// The most tiles that `tokens` tokens in at most `documents` documents need.
int64_t most_tiles(int64_t tokens, int64_t documents) {
  return (tokens + kPagedTileRows - 1) / kPagedTileRows + documents;
}

Attention::Output empty_output(const Attention& op, bool want_lse, int64_t length) {
  const int64_t tokens = op.q.dim(0), heads = op.q.dim(1);
  const auto empty = [&](Shape shape, DType dtype) {
    return Tensor::empty(shape, dtype, MemoryTag::kActivations, op.q.device());
  };
  Attention::Output out{empty(op.q.shape(), op.q.dtype()), {}};
  if (want_lse)
    out.lse = empty(length > 0 ? Shape{tokens / length, heads, length} : Shape{tokens, heads}, DType::kF32);
  return out;
}

Attention::Output forward(const Attention& op, bool want_lse) {
  const Packing packing = packing_of(op, false);
  const int64_t length = length_of(packing);
  const Attention::Output out = empty_output(op, want_lse, length);
  take_for_granted("invariant " + name_of(packing),
                   [packing, length] { return length_of(packing) == length; });
  const Device device = op.q.device();
  if (only_counts(device) || op.q.dim(0) == 0) return out;
  const Tensor q = readable(op.q, false), k = readable(op.k, false), v = readable(op.v, false);
  const auto at = [](const Tensor& tensor) { return static_cast<__nv_bfloat16*>(tensor.raw()); };
  PagedArguments arguments{};
  arguments.q = at(q);
  arguments.keys = at(k);
  arguments.values = at(v);
  arguments.y = at(out.y);
  arguments.q_stride = q.stride(0);
  arguments.k_stride = k.stride(0);
  arguments.v_stride = v.stride(0);
  arguments.heads = static_cast<int>(q.dim(1));
  arguments.kv_heads = static_cast<int>(k.dim(1));
  arguments.dim = static_cast<int>(q.dim(2));
  arguments.window = static_cast<int>(op.window);
  arguments.scale = op.scale * kLog2E;
  arguments.logs = want_lse ? out.lse.data<float>() : nullptr;
  arguments.log_length = static_cast<int>(length);
  const int64_t most = most_tiles(q.dim(0), op.cu_seqlens_q.dim(0) - 1);
  Tensor memory;
  const auto tiles = bring_plan<PagedTile>(
      "tiles of " + name_of(packing), most, [packing] { return tiles_of(packing); }, device, memory);
  launch_tiles<InRows>(arguments, tiles, "attention", device);
  return out;
}

ops::Refusal accepts(const Attention::Signature& s, const HardwareFacts& facts) {
  if (facts.compute_capability != 90)
    return fmt::format("is for compute capability 9.0, this is {}.{}", facts.compute_capability / 10,
                       facts.compute_capability % 10);
  if (s.narrow_or_wide_values())
    return fmt::format("values must be as wide as keys, are {} and {}", s.value_dim, s.head_dim);
  return refuse_packed_attention(s, facts);
}

}  // namespace

void register_cuda_invariant_attention() {
  ops::kernels<Attention>().add(
      "cuda_invariant",
      {.hardware = hardware::kGpu,
       .accepts = accepts,
       .forward = forward,
       .needs = {.backward = {"hopper", "cudnn"}},  // which read the logs of denominators that forward keeps
       .batch_invariant = true,
       .repeats = true,
       .outline = {forward, nullptr}});
}

}  // namespace temper::backends
