// In float32: one new token of each sequence by a kernel of its own (paged_float32.h), parts of prompts as documents of
// the attention that trains.
#include "backends/cuda/attention/paged_float32.h"

#include <bit>
#include <map>
#include <mutex>

#include "backends/cuda/attention/page_shift.h"
#include "backends/cuda/attention/paged_attention.h"
#include "backends/gpu/attention_operands.h"
#include "ops/attention/attention.h"
#include "ops/attention/paged_attention.h"

namespace temper::backends {
namespace {

using namespace paged_float32;
using ops::PagedAttention;

constexpr int kMostHeads = 8;       // query heads of a block
constexpr int kFewBlocks = 32;      // of all sequences, before positions are cut: too few
constexpr int kLargestHead = 256;
constexpr int kWantedBlocks = 264;  // fixed, so that sums do not depend on the GPU
constexpr int kCounters = 1 << 16;

// Counts of finished blocks, 0 between launches: the last block of each count clears it. No thread waits for a
// count. Each stream has counters of its own, and runs the launches that use them in order.
unsigned* counters(Device device) {
  // Never destroyed: the driver may be gone when static objects go.
  static auto& all = *new std::map<std::pair<int, int>, Tensor>;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  Tensor& found = all[{device.index, device::streams(device.index).current()}];
  if (!found.defined()) found = Tensor::zeros({kCounters}, DType::kI32, MemoryTag::kData, device);
  return static_cast<unsigned*>(found.raw());
}

// Calls f.template operator()<N, P, group>(): lanes that hold a head, in packs where heads are whole packs. Few models
// have other heads, or narrow ones: those have lanes without work instead of kernels of their own.
template <class F>
void visit_group(int dim, F&& f) {
  constexpr int N = kLanes<float>;
  if (dim % N != 0) return f.template operator()<1, 2, 32>();
  const int packs = dim / N;
  if (packs <= 8) return f.template operator()<N, 1, 8>();
  if (packs <= 16) return f.template operator()<N, 1, 16>();
  if (packs <= 32) return f.template operator()<N, 1, 32>();
  f.template operator()<N, 2, 32>();
}

template <class F>
void visit_heads(int64_t heads, F&& f) {
  if (heads == 1) return f.template operator()<1>();
  if (heads == 2) return f.template operator()<2>();
  if (heads <= 4) return f.template operator()<4>();
  f.template operator()<kMostHeads>();
}

// How the work is cut: query heads of a block, blocks of a sequence, splits of its positions.
struct Cut {
  int64_t heads, blocks, splits;

  explicit Cut(const PagedAttention& op) {
    const int64_t sequences = std::max<int64_t>(op.sequences.count(), 1), kv_heads = op.k.dim(1),
                  group = op.q.dim(1) / kv_heads;
    const auto blocks_of = [&](int64_t own) { return kv_heads * ((group + own - 1) / own); };
    heads = std::min<int64_t>(group, kMostHeads);
    // Few blocks have less to do each and share keys in the L2 cache.
    while (heads > 1 && sequences * blocks_of(heads) < kFewBlocks) heads /= 2;
    heads = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(heads)));
    blocks = blocks_of(heads);
    splits = std::clamp<int64_t>(kWantedBlocks / (blocks * sequences), 1, kMostSplits);
  }
  Tensor partial(const PagedAttention& op) const {
    return Tensor::empty({op.sequences.count() * blocks * splits * heads, op.q.dim(2) + 2}, DType::kF32,
                         MemoryTag::kWorkspace, op.q.device());
  }
};

// Where some sequence has several new tokens.
Tensor attend_documents(const PagedAttention& op) {
  ops::write_pages(op.keys, op.sequences, op.k);
  ops::write_pages(op.values, op.sequences, op.v);
  ops::Attention all;
  all.q = op.q;
  all.k = ops::read_pages(op.keys, op.sequences);
  all.v = ops::read_pages(op.values, op.sequences);
  all.cu_seqlens_q = op.sequences.starts;
  all.cu_seqlens_k = Tensor::from(op.sequences.starts_k());
  all.scale = op.scale;
  all.window = op.window;
  return ops::kernels<ops::Attention>().find("cuda")->forward(all, false).y;
}

Tensor forward(const PagedAttention& op) {
  const Device device = op.q.device();
  if (!have_one_token_each(op.sequences)) return attend_documents(op);
  const Tensor y = Tensor::empty(op.q.shape(), DType::kF32, MemoryTag::kActivations, device);
  if (y.numel() == 0) return y;
  const int64_t sequences = op.q.dim(0), heads = op.q.dim(1), dim = op.q.dim(2), kv_heads = op.k.dim(1);
  const Tensor q = readable(op.q, false), k = readable(op.k, false), v = readable(op.v, false),
               held = from_host(op.sequences.held, device),
               pages = from_host(op.sequences.pages, device);
  const Cut cut(op);
  invariant(sequences * cut.blocks <= kCounters, "too many sequences for one launch of paged_attention");
  const Tensor partial = cut.partial(op);
  visit_heads(cut.heads, [&]<int H>() {
    const Arguments arguments{{q.data<float>(), q.stride(0)}, {k.data<float>(), k.stride(0)},
                              {v.data<float>(), v.stride(0)}, op.keys.data<float>(), op.values.data<float>(),
                              y.data<float>(),
                              {held.data<int32_t>(), pages.data<int32_t>(), static_cast<int>(op.keys.dim(1)),
                               page_shift_of(op.keys.dim(1)), static_cast<int>(pages.dim(1))},
                              partial.data<float>(), counters(device), static_cast<int>(heads),
                              static_cast<int>(kv_heads), static_cast<int>(dim), static_cast<int>(cut.splits),
                              static_cast<int>(op.window), op.scale * kLog2E};
    visit_group(static_cast<int>(dim), [&]<int N, int P, int kGroup>() {
      const dim3 grid(static_cast<unsigned>(cut.splits), static_cast<unsigned>(cut.blocks),
                      static_cast<unsigned>(sequences));
      const auto shared = static_cast<size_t>(kWarps * H * (dim + 2)) * sizeof(float);
      allow_scratch(attend<N, P, kGroup, H>, shared);
      DependentLaunch{"paged_attention", device, grid, kWarps * 32, shared}(attend<N, P, kGroup, H>, arguments);
    });
  });
  return y;
}

Tensor outline(const PagedAttention& op) {
  const Tensor y = ops::outline<PagedAttention>().forward(op);
  if (have_one_token_each(op.sequences)) {
    Cut(op).partial(op);
  } else {
    const Tensor keys = ops::read_pages(op.keys, op.sequences), values = ops::read_pages(op.values, op.sequences);
  }
  return y;
}

ops::Refusal accepts(const PagedAttention::Signature& s, const HardwareFacts& facts) {
  if (s.dtype != DType::kF32) return "dtype must be float32";
  const int64_t lanes = kLanes<float>, most = s.head_dim % lanes == 0 ? kLargestHead : 64;
  if (s.head_dim > most)
    return fmt::format("head_dim must be at most {}{}, is {}", most,
                       most == 64 ? fmt::format(" where it is no multiple of {}", lanes) : "", s.head_dim);
  return ops::kernels<ops::Attention>().find("cuda")->accepts(
      {.dtype = s.dtype, .heads = s.heads, .kv_heads = s.kv_heads, .head_dim = s.head_dim, .window = s.window,
       .sinks = s.sinks},
      facts);
}

}  // namespace

void register_cuda_paged_float32() {
  ops::kernels<PagedAttention>().add(
      "cuda_float32",
      {.hardware = hardware::kGpu, .accepts = accepts, .forward = forward, .repeats = true, .outline = {outline}});
}

}  // namespace temper::backends
