#pragma once
#include <bit>

#include "backends/gpu/device_code.h"
#include "quant/groups.h"

// Where the elements of a matrix, or of experts' matrices, are and which amax belongs to them
// (quant/groups.h), for kernels in which a thread works on packs of `N` neighbours in a row. Packs are
// numbered through, row by row.
namespace temper::backends {

// n / d for n below 2^31, as a product (Granlund and Montgomery, "Division by Invariant Integers using
// Multiplication", 1994).
class QuickDivisor {
 public:
  using Index = uint32_t;
  explicit QuickDivisor(int64_t d)
      : shift_(std::bit_width(static_cast<uint64_t>(d - 1))),
        factor_(static_cast<uint32_t>((uint64_t{1} << (31 + shift_)) / static_cast<uint64_t>(d) + 1)) {}
  __device__ Index of(Index n) const { return __umulhi(2 * n, factor_) >> shift_; }

 private:
  int shift_;
  uint32_t factor_;
};

// The same for any n.
class PlainDivisor {
 public:
  using Index = int64_t;
  explicit PlainDivisor(int64_t d) : d_(d) {}
  __device__ Index of(Index n) const { return n / d_; }

 private:
  int64_t d_;
};

template <class Divisor>
class GroupPlaces {
 public:
  using Index = typename Divisor::Index;
  GroupPlaces(const quant::Groups& g, int lanes)
      : packs_(g.columns / lanes),
        rows_(g.rows),
        row_groups_(static_cast<Index>(g.row_groups)),
        column_groups_(static_cast<Index>(g.column_groups)),
        in_order_((g.experts == g.expert_groups || g.row_groups * g.column_groups == 1) &&
                  (g.rows == g.row_groups || g.column_groups == 1)),
        by_group_(g.experts * g.rows * packs_ / (g.expert_groups * g.row_groups * g.column_groups)),
        by_packs_(packs_),
        by_rows_(rows_),
        by_expert_group_(g.experts / g.expert_groups),
        by_row_group_(g.rows / g.row_groups),
        by_column_group_(packs_ / g.column_groups) {}

  struct Place {
    Index expert, row, pack;  // the row in the expert's matrix, the pack in the row
  };
  __device__ Place place(Index pack) const {
    const Index row = by_packs_.of(pack), expert = by_rows_.of(row);
    return {expert, row - expert * static_cast<Index>(rows_), pack - row * static_cast<Index>(packs_)};
  }
  __device__ Index group(Index pack) const {
    if (in_order_) return by_group_.of(pack);
    const Place at = place(pack);
    const Index rows = by_expert_group_.of(at.expert) * row_groups_ + by_row_group_.of(at.row);
    return rows * column_groups_ + by_column_group_.of(at.pack);
  }

 private:
  int64_t packs_, rows_;
  Index row_groups_, column_groups_;
  bool in_order_;  // each group is a run of packs
  Divisor by_group_, by_packs_, by_rows_, by_expert_group_, by_row_group_, by_column_group_;
};

// Rows of a tensor [rows, columns] or [experts, rows, columns] whose outer strides are of any size.
template <class T>
struct StridedRows {
  explicit StridedRows(const Tensor& tensor)
      : data(static_cast<T*>(tensor.raw())),
        expert_stride(tensor.ndim() == 3 ? tensor.stride(0) : 0),
        row_stride(tensor.stride(-2)),
        compact(tensor.is_contiguous()) {}

  template <int N, class Divisor>
  __device__ T* at(const GroupPlaces<Divisor>& places, typename Divisor::Index pack) const {
    if (compact) return data + int64_t{pack} * N;
    const auto place = places.place(pack);
    return data + int64_t{place.expert} * expert_stride + int64_t{place.row} * row_stride +
           int64_t{place.pack} * N;
  }
  // Whether every row has packs of N elements that loads take at once.
  bool has_packs(int lanes) const {
    return compact ? is_pack(data, lanes)
                   : is_pack(data, lanes) && expert_stride % lanes == 0 && row_stride % lanes == 0;
  }

  T* data;
  int64_t expert_stride, row_stride;
  bool compact;

 private:
  static bool is_pack(const void* at, int lanes) {
    return reinterpret_cast<uintptr_t>(at) % (static_cast<size_t>(lanes) * sizeof(T)) == 0;
  }
};

// Calls f.template operator()<N, Divisor>(): packs of `kMost` elements where columns, groups and addresses
// allow them, and otherwise elements alone.
template <int kMost, class F>
void visit_packs(const quant::Groups& groups, bool addresses_allow, F&& f) {
  const int64_t packs = groups.experts * groups.rows * groups.columns / kMost;
  if (addresses_allow && groups.width() % kMost == 0 && packs < int64_t{1} << 31)
    f.template operator()<kMost, QuickDivisor>();
  else
    f.template operator()<1, PlainDivisor>();
}

// Blocks take runs of packs in turn. Each thread has several loads under way.
inline constexpr int kPacksAhead = 4;
inline unsigned blocks_for_runs(int64_t packs) { return blocks_for(packs, kPacksAhead); }

// A block for each run, which writes as it reads: on one H200 5 GB pass in 1.29 ms, by blocks that stride
// in 1.41 ms.
template <int kThreadsOfBlock = kThreads>
unsigned one_block_for_each_run(int64_t packs) {
  constexpr int64_t kRun = int64_t{kThreadsOfBlock} * kPacksAhead;
  return static_cast<unsigned>((packs + kRun - 1) / kRun);
}

// Calls f(first) with a thread's first pack of each run; the others are a block's threads apart, and may be
// beyond the end. All threads of a block make the same calls.
template <int kThreadsOfBlock = kThreads, class Index, class F>
__device__ void for_runs(Index packs, F&& f) {
  const Index step = static_cast<Index>(gridDim.x) * kThreadsOfBlock * kPacksAhead;
  for (Index run = static_cast<Index>(blockIdx.x) * kThreadsOfBlock * kPacksAhead; run < packs; run += step)
    f(run + static_cast<Index>(threadIdx.x));
}

}  // namespace temper::backends
