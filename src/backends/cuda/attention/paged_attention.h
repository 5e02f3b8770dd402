#pragma once
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "backends/gpu/device_code.h"
#include "ops/paged_sequences.h"
#include "tensor/host_inputs.h"

// What the kernels of paged_attention share.
namespace temper::backends {

inline constexpr float kNoPagedScore = -1e30f;  // below every score, and finite

struct PagedArguments {
  const __nv_bfloat16 *q, *k, *v;
  __nv_bfloat16 *keys, *values, *y;
  const int* pages;   // [sequences, width]
  const void* sinks;  // [heads], float32 where wide_sinks, else bfloat16; null: none
  bool wide_sinks;
  int64_t q_stride, k_stride, v_stride;
  int heads, kv_heads, dim, page_tokens, width, window;
  int page_shift;  // page_tokens = 1 << page_shift; -1 where it is no power of two
  float scale;     // with log2(e): scores are powers of two
  // For backward, null: not wanted: logs of the sums of weights, [tokens, heads]; or, of documents of one
  // length, [documents, heads, log_length].
  float* logs = nullptr;
  int log_length = 0;

  __device__ int group() const { return heads / kv_heads; }
  // A token's page; where it lies among all tokens of all pages.
  __device__ int page_of(int sequence, int token) const {
    return __ldg(pages + int64_t{sequence} * width +
                 (page_shift < 0 ? token / page_tokens : token >> page_shift));
  }
  __device__ int64_t place_in(int page, int token) const {
    return int64_t{page} * page_tokens + token % page_tokens;
  }
  __device__ int64_t row_of(int64_t place, int kv_head) const { return (place * kv_heads + kv_head) * dim; }
  __device__ int64_t log_place(int64_t row, int head) const {
    if (log_length == 0) return row * heads + head;
    return (row / log_length * heads + head) * log_length + row % log_length;
  }
  // What a head's sink adds to the sum of its weights, whose largest is that of `largest`.
  __device__ float sink(int head, float largest) const {
    if (sinks == nullptr) return 0;
    const float value = wide_sinks ? static_cast<const float*>(sinks)[head]
                                   : widen(static_cast<const __nv_bfloat16*>(sinks)[head]);
    return exp2f(__fsub_rn(__fmul_rn(value, kLog2E), largest));
  }
};

// Some positions [begin, end) of a sequence that gets one token: `row` of q, at position `held`. They are one
// of `splits` of all that the token sees, of which number `first` among the items is the first.
struct alignas(16) PagedItem {
  int sequence, row, begin, end, first, splits, held, number;

  __device__ bool leaves_out(int position, int window) const {
    return position >= end || (window > 0 && held - position >= window);
  }
};
// Some new tokens of a sequence that gets several: `rows` from `row` of q on, at positions from `position`
// on. Without pages `sequence` is where the keys of their document begin.
struct alignas(16) PagedTile {
  int sequence, row, position, rows;
};
inline constexpr int kPagedTileRows = 64;

// Whether each gets one token, which work that is captured takes for granted.
bool have_one_token_each(const ops::PagedSequences& sequences);

// What the host planned, at an address that stays: the number of entries that are there comes first.
template <class Entry>
struct PagedPlan {
  struct alignas(16) Count {
    int entries, unused[3];
  };
  const std::byte* memory = nullptr;
  int most = 0;

  static int64_t bytes(int64_t most) {
    return static_cast<int64_t>(sizeof(Count)) + most * static_cast<int64_t>(sizeof(Entry));
  }
  __device__ int entries() const { return reinterpret_cast<const Count*>(memory)->entries; }
  __device__ const Entry& at(int index) const {
    return reinterpret_cast<const Entry*>(memory + sizeof(Count))[index];
  }
};

// `plan` in the memory that kernels read, and again whenever work with it is repeated; `memory` keeps it.
template <class Entry, class F>
PagedPlan<Entry> bring_plan(const std::string& name, int64_t most, F plan, Device device, Tensor& memory) {
  memory = from_host(name, {PagedPlan<Entry>::bytes(most)}, DType::kU8, device, [=](std::byte* to) {
    const std::vector<Entry> entries = plan();
    invariant(std::ssize(entries) <= most, "a plan of attention that has no room");
    const typename PagedPlan<Entry>::Count count{static_cast<int>(entries.size()), {}};
    std::memcpy(to, &count, sizeof(count));
    std::memcpy(to + sizeof(count), entries.data(), entries.size() * sizeof(Entry));
  });
  return {static_cast<const std::byte*>(memory.raw()), static_cast<int>(most)};
}

// What items leave for each other, float32.
struct PagedWorkspace {
  Tensor partial;  // [items, heads, dim]: sums of values by weights
  Tensor stats;    // [items, heads, 2]: the largest score, and the weights' sum

  PagedWorkspace(int64_t items, int64_t heads, int64_t dim, Device device)
      : partial(Tensor::empty({items, heads, dim}, DType::kF32, MemoryTag::kWorkspace, device)),
        stats(Tensor::empty({items, heads, 2}, DType::kF32, MemoryTag::kWorkspace, device)) {}
};
// One token of each sequence, which is also written to its place; `splits`: whether a sequence can be several
// items.
void attend_paged_items(const PagedArguments& arguments, const PagedPlan<PagedItem>& items, bool splits,
                        Device device);
// Parts of prompts: keys and values to their places, then attention.
void attend_paged_tiles(const PagedArguments& arguments, const PagedPlan<PagedTile>& tiles, Device device);

}  // namespace temper::backends
