// The largest magnitudes of groups, or the ends of their ranges: as bits, whose order is that of numbers, so that any
// order of updates gives the same.
#include "backends/cuda/experts/group_places.h"
#include "backends/cuda/primitives/primitives.h"

namespace temper::backends {
namespace {

template <class T, class Divisor>
struct AmaxArguments {
  StridedRows<T> x;
  uint32_t* amax;
  GroupPlaces<Divisor> places;
  typename Divisor::Index packs;
};

using quant::Extreme;

template <Extreme kExtreme, class T>
__device__ uint32_t bits_of(T value) {
  return quant::bits_of_extreme(kExtreme, __float_as_uint(widen(value)));
}

// The extreme of packs. Magnitudes of 16 bits are compared as they are, two in a word.
template <class T, int N, Extreme kExtreme>
struct Largest {
  static constexpr bool kPairs = sizeof(T) == 2 && N % 2 == 0 && kExtreme == Extreme::kMagnitude;

  __device__ void take(const Pack<T, N>& pack) {
    if constexpr (kPairs) {
      const auto* pairs = reinterpret_cast<const uint32_t*>(pack.values);
#pragma unroll
      for (int k = 0; k < N / 2; ++k) found = __vmaxu2(found, pairs[k] & 0x7FFF7FFFu);
    } else {
#pragma unroll
      for (int k = 0; k < N; ++k) found = max(found, bits_of<kExtreme>(pack.values[k]));
    }
  }
  // As float32 has it.
  __device__ uint32_t bits() const {
    if constexpr (kPairs) {
      const auto most = static_cast<uint16_t>(max(found & 0xFFFFu, found >> 16));
      T value;
      memcpy(&value, &most, sizeof value);
      return bits_of<kExtreme>(value);
    } else {
      return quant::extreme_of_bits(kExtreme, found);
    }
  }

  uint32_t found = 0;
};

// What the lanes of a warp found, each for its group: one update for each group.
template <class Index>
__device__ void update(uint32_t* amax, Index group, uint32_t found) {
  const unsigned active = __activemask();
  const unsigned peers = sizeof(Index) == 4
                             ? __match_any_sync(active, static_cast<uint32_t>(group))
                             : __match_any_sync(active, static_cast<unsigned long long>(group));
  const uint32_t most = __reduce_max_sync(peers, found);
  if (most > 0 && static_cast<int>(threadIdx.x % 32) == __ffs(static_cast<int>(peers)) - 1)
    atomicMax(amax + group, most);
}

// The same of a block's threads, all of which come here: one update where they have one group, since updates of
// one address wait for each other.
template <class Index>
__device__ void update_by_block(uint32_t* amax, Index group, uint32_t found) {
  __shared__ Index of_block;
  __shared__ uint32_t most;
  if (threadIdx.x == 0) {
    of_block = group;
    most = 0;
  }
  __syncthreads();
  if (!__syncthreads_and(group == of_block)) return update(amax, group, found);
  const uint32_t of_warp = __reduce_max_sync(0xFFFFFFFFu, found);
  if (threadIdx.x % 32 == 0) atomicMax(&most, of_warp);
  __syncthreads();
  if (threadIdx.x == 0 && most > 0) atomicMax(amax + group, most);
}

// A thread keeps what it found for as long as its packs are of one group. A block's runs are adjacent, so
// that it has few groups: blocks that stride come to the next group together, and their updates of it wait.
template <class T, int N, class Divisor, Extreme kExtreme>
__global__ void __launch_bounds__(kThreads)
    find_amax(const __grid_constant__ AmaxArguments<T, Divisor> a) {
  using Index = typename Divisor::Index;
  Index last = 0;
  Largest<T, N, kExtreme> most;  // what amax is at least
  constexpr Index kRun = kThreads * kPacksAhead;
  const Index runs = (a.packs + kRun - 1) / kRun, of_block = (runs + gridDim.x - 1) / gridDim.x,
              from = blockIdx.x * of_block, until = min(from + of_block, runs);
  for (Index run = from; run < until; ++run) {
    const Index first = run * kRun + static_cast<Index>(threadIdx.x);
    Pack<T, N> packs[kPacksAhead] = {};
#pragma unroll
    for (int i = 0; i < kPacksAhead; ++i) {
      const Index pack = first + i * kThreads;
      if (pack < a.packs) packs[i] = load_pack<T, N>(a.x.template at<N>(a.places, pack));
    }
#pragma unroll
    for (int i = 0; i < kPacksAhead; ++i) {
      const Index pack = first + i * kThreads;
      if (pack >= a.packs) continue;
      const Index group = a.places.group(pack);
      if (group != last) {
        update(a.amax, last, most.bits());
        most = {};
        last = group;
      }
      most.take(packs[i]);
    }
  }
  update_by_block(a.amax, last, most.bits());
}

template <Extreme kExtreme>
void grow(const Tensor& x, const Tensor& amax) {
  if (x.numel() == 0) return;
  const quant::Groups groups = quant::groups_of("amax", x.shape(), amax.shape());
  visit_device_float(x.dtype(), [&]<class T>() {
    const StridedRows<T> rows(x);
    visit_packs<kLanes<T>>(groups, rows.has_packs(kLanes<T>), [&]<int N, class Divisor>() {
      const int64_t packs = x.numel() / N;
      const AmaxArguments<T, Divisor> arguments{rows, static_cast<uint32_t*>(amax.raw()),
                                                GroupPlaces<Divisor>(groups, N),
                                                static_cast<typename Divisor::Index>(packs)};
      find_amax<T, N, Divisor, kExtreme>
          <<<blocks_for_runs(packs), kThreads, 0, device::stream(x.device())>>>(arguments);
    });
  });
  device::check_launch("amax");
}

void grow_amax(const Tensor& x, const Tensor& amax, Extreme extreme) {
  const auto growing = extreme == Extreme::kHigh  ? grow<Extreme::kHigh>
                       : extreme == Extreme::kLow ? grow<Extreme::kLow>
                                                  : grow<Extreme::kMagnitude>;
  growing(x, amax);
}

}  // namespace

void set_amax(primitives::PrimitiveFunctions& functions) { functions.grow_amax = grow_amax; }

}  // namespace temper::backends
