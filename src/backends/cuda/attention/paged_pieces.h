#pragma once
#include "backends/cuda/attention/attention_order.h"
#include "backends/gpu/dependent_launch.h"

// Pieces of the work of paged_decode.cu, and how their keys and values come.
namespace temper::backends {

inline constexpr int kPieceTokens = 16;  // of a tile
inline constexpr int kPieceHeads = 8;    // query heads, at most

struct PagedUnits {
  PagedPlan<PagedItem> items;
  bool splits;             // whether a sequence can be several items
  float *partial, *stats;  // PagedWorkspace
  int parts;               // of a key head's query heads

  __device__ int pieces(const PagedArguments& a) const { return items.entries() * of_item(a); }
  __device__ int of_item(const PagedArguments& a) const { return a.kv_heads * parts; }
  __device__ PagedItem item(int index) const {
    const int4* const from = reinterpret_cast<const int4*>(&items.at(index));
    PagedItem item;
    reinterpret_cast<int4*>(&item)[0] = __ldg(from);
    reinterpret_cast<int4*>(&item)[1] = __ldg(from + 1);
    return item;
  }
};

// An item's positions, a key head and some of its query heads.
struct PagedPiece {
  PagedItem item;
  int kv_head, part, first_head, heads;

  __device__ PagedPiece(const PagedArguments& a, const PagedUnits& units, const PagedItem& of, int number)
      : item(of),
        kv_head(number % units.of_item(a) / units.parts),
        part(number % units.of_item(a) % units.parts),
        first_head(kv_head * a.group() + part * kPieceHeads),
        heads(min(kPieceHeads, a.group() - part * kPieceHeads)) {}
  // Whether the new token is among the 16 from `position` on; it is to be kept once for each key head.
  __device__ bool keeps_token(int position) const {
    return part == 0 && item.end == item.held + 1 && position + kPieceTokens >= item.end;
  }
};

template <int kDim>
struct PagedKeys {
  __nv_bfloat16 keys[kPieceTokens][kDim + 8], values[kPieceTokens][kDim + 8];
};

// Copies of an item's tokens, of one key head, that a warp asks for.
template <int kDim>
class TokenSource {
 public:
  __device__ explicit TokenSource(const PagedArguments& a) : a_(a), step_of_token_(a.kv_heads * a.dim) {}

  __device__ void begin(const PagedItem& item, int kv_head) {
    item_ = item;
    kv_head_ = kv_head;
  }
  __device__ const PagedItem& item() const { return item_; }

  // Of the token of this lane, for ask().
  __device__ int page_at(int position) const {
    const int token = position + lane() % kPieceTokens;
    return token < item_.end ? a_.page_of(item_.sequence, token) : 0;
  }
  // Whether a tile has only tokens of earlier passes, whose keys and values are where they stay.
  __device__ bool is_old(int position) const {
    return lie_together(position) && position + kPieceTokens <= item_.held;
  }
  __device__ void ask(PagedKeys<kDim>& tile, int position, int page) const {
    is_old(position) ? ask_together(tile, position, page) : ask_each(tile, position, page);
  }

 private:
  static constexpr int kChunks = kDim / 8;                     // of a row
  static constexpr int kCopies = kPieceTokens * kChunks / 32;  // of keys, and of values, by a lane

  // Whether a tile's tokens, all of them there, are in one page.
  __device__ bool lie_together(int position) const {
    return a_.page_shift >= 4 && a_.dim == kDim && position % kPieceTokens == 0 &&
           position + kPieceTokens <= item_.end;
  }
  __device__ void ask_together(PagedKeys<kDim>& tile, int position, int page) const {
    const int place = (page << a_.page_shift) + (position & ((1 << a_.page_shift) - 1));
    const int row = lane() / kChunks, column = lane() % kChunks * 8, step = 32 / kChunks * step_of_token_;
    const int64_t at = int64_t{place + row} * step_of_token_ + kv_head_ * kDim + column;
    const __nv_bfloat16 *k = a_.keys + at, *v = a_.values + at;
    const uint32_t to = shared_address(&tile.keys[row][column]);
    constexpr uint32_t kRows = 32 / kChunks * sizeof(tile.keys[0]), kValues = sizeof(tile.keys);
#pragma unroll
    for (int i = 0; i < kCopies; ++i, k += step, v += step) {
      load_chunk(to + i * kRows, k);
      load_chunk(to + kValues + i * kRows, v);
    }
  }
  __device__ void ask_each(PagedKeys<kDim>& tile, int position, int page) const {
    const int token = position + lane() % kPieceTokens;
    const int own = token < item_.end ? static_cast<int>(a_.place_in(page, token)) : 0;
    const int64_t head = int64_t{kv_head_} * a_.dim;
#pragma unroll 1
    for (int i = 0; i < kCopies; ++i) {
      const int row = (i * 32 + lane()) / kChunks, column = (i * 32 + lane()) % kChunks * 8;
      const int64_t place = __shfl_sync(0xffffffffu, own, row);
      const bool there = position + row < item_.end && column < a_.dim;
      const int64_t at = place * step_of_token_ + head + (there ? column : 0);
      const __nv_bfloat16 *k = a_.keys + at, *v = a_.values + at;
      if (position + row == item_.held && there) {  // the new token comes from its own place
        k = a_.k + item_.row * a_.k_stride + head + column;
        v = a_.v + item_.row * a_.v_stride + head + column;
      }
      load_chunk(shared_address(&tile.keys[row][column]), k, there ? 16 : 0);
      load_chunk(shared_address(&tile.values[row][column]), v, there ? 16 : 0);
    }
  }

  const PagedArguments& a_;
  const int step_of_token_;
  PagedItem item_{};
  int kv_head_ = 0;
};

// The new token, which is among those from `position` on, to its place.
template <int kDim>
__device__ inline void keep_new_token(const PagedArguments& a, const PagedPiece& piece,
                                      const PagedKeys<kDim>& tile, int position) {
  const PagedItem& item = piece.item;
  const int row = item.held - position;
  const int64_t to = a.row_of(a.place_in(a.page_of(item.sequence, item.held), item.held), piece.kv_head);
  for (int column = lane() * 8; column < a.dim; column += 256) {
    store_pack(a.keys + to + column, load_pack<__nv_bfloat16, 8>(&tile.keys[row][column]));
    store_pack(a.values + to + column, load_pack<__nv_bfloat16, 8>(&tile.values[row][column]));
  }
}

}  // namespace temper::backends
