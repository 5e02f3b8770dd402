// Attention's backward pass for Hopper: with P = 2^(s·q kᵀ - logs) and dS = P (dy vᵀ - deltas),
//   dv = Pᵀ dy    dk = scale · dSᵀ q    dq = scale · dS k
// A block of threads holds 128 keys and values, 64 for each of two warpgroups, and meets tiles of queries of
// all heads that share them; dk and dv stay in registers. A third warpgroup copies tiles in and adds dq to
// memory, in turns, so that sums have one order (attention_schedule.h). Scores are computed transposed, keys by
// queries: their registers are then an operand of the products that follow. While the scores of one tile
// become probabilities, products of the tile before and after it run.
//
// Who adds to a tile of dq waits until its turn comes (add_dq). That all come to their end whatever the order in
// which the GPU starts blocks: a block takes its item by an atomic ticket, so that items begin in their order. An
// item of an unpaired document waits only for items before it. Those of a paired one also wait for later items,
// of the same document and key head, which are no more than the GPU runs at once (schedule_of): when all earlier
// items are done, all of these have begun. For that the kernel must get every multiprocessor in the end, and so it
// never runs at the same time as another one that waits like this (device::AloneScope).
#include "backends/hopper/attention/attention_backward_copies.h"
#include "backends/hopper/attention/attention_backward_sums.h"

namespace temper::backends::hopper {
namespace {

template <int kDim>
__global__ void __launch_bounds__(3 * kWarpgroup, 1)
    attention_backward(const __grid_constant__ BackwardArguments arguments) {
  using L = Layout<kDim>;
  extern __shared__ char memory[];
  const uint32_t base = (shared_address(memory) + kGroupBytes - 1) / kGroupBytes * kGroupBytes;
  int* const ticket = reinterpret_cast<int*>(memory + (base - shared_address(memory)) + L::kTicket);
  if (threadIdx.x == 0) {
    init_barriers<kDim>(base);
    *ticket = atomicAdd(arguments.ticket, 1);
  }
  __syncthreads();
  const Work<L::kTile> work(arguments, *ticket);
  if (work.is_empty()) return;
  if (threadIdx.x < kWarpgroup) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (threadIdx.x == 0) produce<kDim>(arguments, work, base);
    if (threadIdx.x == 32) add_dq<kDim>(arguments, work, base, 0);
    if (threadIdx.x == 64) add_dq<kDim>(arguments, work, base, 1);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    Consumer<kDim>(arguments, work, base).run();
  }
}

template <int kDim>
void launch(const BackwardArguments& arguments, int items, cudaStream_t stream) {
  constexpr int kBytes = Layout<kDim>::kBytes;
  allow_scratch(attention_backward<kDim>, kBytes);  // of the current GPU
  attention_backward<kDim><<<items, 3 * kWarpgroup, kBytes, stream>>>(arguments);
}

}  // namespace

void launch_backward(int head_dim, const BackwardArguments& arguments, int items, cudaStream_t stream) {
  head_dim == 64 ? launch<64>(arguments, items, stream) : launch<128>(arguments, items, stream);
}

}  // namespace temper::backends::hopper
