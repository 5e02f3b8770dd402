// Parts of prompts against keys and values in pages.
#include "backends/cuda/attention/ordered_tiles.h"

namespace temper::backends {
namespace {

using Brain = __nv_bfloat16;

// Rows of keys and values of new tokens to their places in pages.
__global__ void __launch_bounds__(kTileWarps * 32) write_rows(const __grid_constant__ PagedArguments a,
                                                          const PagedPlan<PagedTile> tiles) {
  if (static_cast<int>(blockIdx.x) >= tiles.entries()) return;
  const PagedTile tile = tiles.at(blockIdx.x);
  const int kv_head = blockIdx.y, chunks = a.dim / 8;
  for (int i = threadIdx.x; i < tile.rows * chunks; i += blockDim.x) {
    const int row = i / chunks, column = i % chunks * 8, token = tile.position + row;
    const int64_t to = a.row_of(a.place_in(a.page_of(tile.sequence, token), token), kv_head) + column;
    const int64_t from = int64_t{kv_head} * a.dim + column;
    store_pack(a.keys + to, load_pack<Brain, 8>(a.k + int64_t{tile.row + row} * a.k_stride + from));
    store_pack(a.values + to, load_pack<Brain, 8>(a.v + int64_t{tile.row + row} * a.v_stride + from));
  }
}

}  // namespace

void attend_paged_tiles(const PagedArguments& a, const PagedPlan<PagedTile>& tiles, Device device) {
  const dim3 grid(static_cast<unsigned>(tiles.most), static_cast<unsigned>(a.kv_heads));
  write_rows<<<grid, kTileWarps * 32, 0, device::stream(device)>>>(a, tiles);
  device::check_launch("paged_attention");
  launch_tiles<InPages>(a, tiles, "paged_attention", device);
}

}  // namespace temper::backends
