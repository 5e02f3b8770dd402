// The largest magnitudes of groups: as bits, whose order is that of numbers, so that any order of updates gives
// the same.
#include "backends/cuda/group_places.h"
#include "backends/cuda/primitives.h"

namespace temper::backends {
namespace {

template <class T, class Divisor>
struct AmaxArguments {
  StridedRows<T> x;
  uint32_t* amax;
  GroupPlaces<Divisor> places;
  typename Divisor::Index packs;
};

template <class T>
__device__ uint32_t magnitude_bits(T value) {
  return __float_as_uint(widen(value)) & 0x7FFFFFFFu;
}

// What the lanes of a warp found, each for its group: one update for each group.
template <class Index>
__device__ void update(uint32_t* amax, Index group, uint32_t found) {
  const unsigned active = __activemask();
  const unsigned peers = sizeof(Index) == 4
                             ? __match_any_sync(active, static_cast<uint32_t>(group))
                             : __match_any_sync(active, static_cast<unsigned long long>(group));
  const uint32_t most = __reduce_max_sync(peers, found);
  if (static_cast<int>(threadIdx.x % 32) == __ffs(static_cast<int>(peers)) - 1) atomicMax(amax + group, most);
}

// A thread keeps what it found for as long as its packs are of one group.
template <class T, int N, class Divisor>
__global__ void __launch_bounds__(kThreads)
    find_amax(const __grid_constant__ AmaxArguments<T, Divisor> a) {
  using Index = typename Divisor::Index;
  Index last = 0;
  uint32_t most = 0;  // what amax is at least
  for_runs(a.packs, [&](Index first) {
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
        update(a.amax, last, most);
        most = 0;
        last = group;
      }
#pragma unroll
      for (int k = 0; k < N; ++k) most = max(most, magnitude_bits(packs[i].values[k]));
    }
  });
  update(a.amax, last, most);
}

void grow_amax(const Tensor& x, const Tensor& amax) {
  if (x.numel() == 0) return;
  const quant::Groups groups = quant::groups_of("amax", x.shape(), amax.shape());
  visit_device_float(x.dtype(), [&]<class T>() {
    const StridedRows<T> rows(x);
    visit_packs<kLanes<T>>(groups, rows.has_packs(kLanes<T>), [&]<int N, class Divisor>() {
      const int64_t packs = x.numel() / N;
      const AmaxArguments<T, Divisor> arguments{rows, static_cast<uint32_t*>(amax.raw()),
                                                GroupPlaces<Divisor>(groups, N),
                                                static_cast<typename Divisor::Index>(packs)};
      find_amax<T, N, Divisor>
          <<<blocks_for_runs(packs), kThreads, 0, device::stream(x.device())>>>(arguments);
    });
  });
  device::check_launch("amax");
}

}  // namespace

void set_amax(primitives::PrimitiveFunctions& functions) { functions.grow_amax = grow_amax; }

}  // namespace temper::backends
