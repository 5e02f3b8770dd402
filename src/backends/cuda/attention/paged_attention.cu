// Sequences with one new token each, and parts of prompts: two kernels, by plans that the host makes of the lengths.
// Their sizes depend on the shapes alone, so a captured graph runs with other lengths and pages.
#include "backends/cuda/attention/attention_order.h"

#include <algorithm>

#include "backends/cuda/attention/page_shift.h"
#include "backends/gpu/attention_operands.h"
#include "ops/attention/paged_attention.h"

namespace temper::backends {
namespace {

using ops::PagedAttention;
using ops::PagedSequences;

constexpr int64_t kLargestHead = 256;

// What is known of a call without its tensors, so that the plan can be made again when lengths change.
struct Planned {
  PagedSequences sequences;
  int64_t page_tokens = 0, window = 0;

  int64_t room() const { return sequences.pages.dim(1) * page_tokens; }  // of a sequence
};

int parts_before(int64_t end) {
  int parts = 0;
  for (int at = 0; at < end; at = split_end(at)) ++parts;
  return parts;
}

int64_t most_items(const Planned& p) { return p.sequences.count() * parts_before(p.room()); }
bool can_split(const Planned& p) { return parts_before(p.room()) > 1; }

std::vector<PagedItem> items_of(const Planned& p) {
  std::vector<PagedItem> items;
  for (int64_t s = 0; s < p.sequences.count(); ++s) {
    if (p.sequences.added(s) != 1) continue;
    const auto held = static_cast<int>(p.sequences.held_by(s)), end = held + 1,
               first = static_cast<int>(items.size()), row = static_cast<int>(p.sequences.start(s));
    const int64_t seen = p.window > 0 ? std::max<int64_t>(0, end - p.window) : 0;
    int splits = 0;
    for (int at = static_cast<int>(seen) / kOrderedKeys * kOrderedKeys; at < end; at = split_end(at), ++splits)
      items.push_back({static_cast<int>(s), row, at, std::min(split_end(at), end), first, 0, held, first + splits});
    for (int i = 0; i < splits; ++i) items[static_cast<size_t>(first + i)].splits = splits;
  }
  // Warps take items in turn: the large ones first, so that all have about as much.
  std::stable_sort(items.begin(), items.end(), [](const PagedItem& a, const PagedItem& b) {
    return a.end - a.begin > b.end - b.begin;
  });
  return items;
}

std::vector<PagedTile> tiles_of(const Planned& p) {
  std::vector<PagedTile> tiles;
  for (int64_t s = 0; s < p.sequences.count(); ++s) {
    const int64_t added = p.sequences.added(s);
    for (int64_t first = 0; added > 1 && first < added; first += kPagedTileRows)
      tiles.push_back({static_cast<int>(s), static_cast<int>(p.sequences.start(s) + first),
                       static_cast<int>(p.sequences.held_by(s) + first),
                       static_cast<int>(std::min<int64_t>(kPagedTileRows, added - first))});
  }
  return tiles;
}

// The plan in the memory that the kernels read; layers whose windows are alike share one.
template <class Entry>
PagedPlan<Entry> bring(const char* kind, int64_t most, const Planned& p, std::vector<Entry> (*plan)(const Planned&),
                       Device device, Tensor& memory) {
  const auto name = fmt::format("paged {} {} {} {} {} {}", kind, p.sequences.starts.raw(), p.sequences.held.raw(),
                                p.sequences.count(), p.page_tokens, p.window);
  return bring_plan<Entry>(name, most, [=] { return plan(p); }, device, memory);
}

Tensor forward(const PagedAttention& op) {
  const Device device = op.q.device();
  const int64_t sequences = op.sequences.count();
  const Tensor y = Tensor::empty(op.q.shape(), op.q.dtype(), MemoryTag::kActivations, device);
  if (sequences == 0) return y;
  const Tensor q = readable(op.q, false), k = readable(op.k, false), v = readable(op.v, false);
  const Tensor pages = from_host(op.sequences.pages, device);
  const Planned planned{op.sequences, op.keys.dim(1), op.window};
  const auto at = [](const Tensor& tensor) { return static_cast<__nv_bfloat16*>(tensor.raw()); };
  const PagedArguments arguments{at(q),
                                 at(k),
                                 at(v),
                                 at(op.keys),
                                 at(op.values),
                                 at(y),
                                 pages.data<int32_t>(),
                                 op.sinks.defined() ? op.sinks.raw() : nullptr,
                                 op.sinks.defined() && op.sinks.dtype() == DType::kF32,
                                 q.stride(0),
                                 k.stride(0),
                                 v.stride(0),
                                 static_cast<int>(q.dim(1)),
                                 static_cast<int>(k.dim(1)),
                                 static_cast<int>(q.dim(2)),
                                 static_cast<int>(op.keys.dim(1)),
                                 static_cast<int>(pages.dim(1)),
                                 static_cast<int>(op.window),
                                 page_shift_of(op.keys.dim(1)),
                                 op.scale * kLog2E};
  const bool one = have_one_token_each(op.sequences);
  Tensor memory;
  if (!one) {
    const std::vector<PagedTile> tiles = tiles_of(planned);
    attend_paged_tiles(arguments,
                       bring<PagedTile>("tiles", std::ssize(tiles), planned, tiles_of, device, memory), device);
    if (items_of(planned).empty()) return y;
  }
  attend_paged_items(arguments, bring<PagedItem>("items", most_items(planned), planned, items_of, device, memory),
                     can_split(planned), device);
  return y;
}

Tensor outline(const PagedAttention& op) {
  Tensor y = ops::outline<PagedAttention>().forward(op);
  const Planned planned{op.sequences, op.keys.dim(1), op.window};
  const PagedWorkspace workspace(can_split(planned) ? most_items(planned) : 0, op.q.dim(1), op.q.dim(2), op.q.device());
  return y;
}

ops::Refusal accepts(const PagedAttention::Signature& s, const HardwareFacts&) {
  if (s.dtype != DType::kBF16) return "dtype must be bfloat16";
  if (s.head_dim % 8 != 0 || s.head_dim > kLargestHead)
    return fmt::format("head_dim must be a multiple of 8 up to {}, is {}", kLargestHead, s.head_dim);
  return std::nullopt;
}

}  // namespace

bool have_one_token_each(const ops::PagedSequences& sequences) {
  const auto have = [](const PagedSequences& all) {
    for (int64_t s = 0; s < all.count(); ++s)
      if (all.added(s) != 1) return false;
    return true;
  };
  const bool one = have(sequences);
  take_for_granted(fmt::format("tokens of paged sequences {}", sequences.starts.raw()),
                   [=] { return have(sequences) == one; });
  return one;
}

void register_cuda_paged_attention() {
  ops::kernels<PagedAttention>().add("cuda", {.hardware = hardware::kGpu,
                                              .accepts = accepts,
                                              .forward = forward,
                                              .batch_invariant = true,
                                              .repeats = true,
                                              .outline = {outline}});
}

}  // namespace temper::backends
