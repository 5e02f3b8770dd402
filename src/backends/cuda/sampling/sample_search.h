#pragma once
#include "backends/cuda/sampling/sample_cut.h"

// Finds tokens by their rank or by the probability before them, digit by digit of the score, from histograms
// (sample.cu).
namespace temper::backends {

// A block's share of a sequence's tokens, and the barrier at which the blocks of a sequence meet.
struct SequenceShare {
  unsigned* keys;      // [vocab]: scores as numbers of the same order
  unsigned* arrivals;  // zero in the beginning
  int begin, end;
  unsigned round = 0;

  __device__ SequenceShare(unsigned* all_keys, unsigned* counter, int vocab)
      : keys(all_keys), arrivals(counter) {
    const int size = (vocab + gridDim.x - 1) / gridDim.x;
    begin = min(static_cast<int>(blockIdx.x) * size, vocab);
    end = min(begin + size, vocab);
  }
  __device__ void barrier() {
    ++round;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
      atomicAdd(arrivals, 1u);
      while (*static_cast<volatile unsigned*>(arrivals) < round * gridDim.x) {
      }
      __threadfence();
    }
    __syncthreads();
  }
};

// Probabilities relative to the best token's.
struct Temperature {
  float best = 0, inverse = 0;
  __device__ Mass mass_of(unsigned key) const { return mass_of_score(score_of(key), best, inverse); }
};

// Tokens, and the sum of their probabilities.
struct Total {
  Mass count, mass;
  __device__ Total operator+(Total other) const { return {count + other.count, mass + other.mass}; }
  __device__ Total operator-(Total other) const { return {count - other.count, mass - other.mass}; }
  __device__ Mass get(bool by_count) const { return by_count ? count : mass; }
};

// A prefix of the tokens sorted by score: those above `key`, and some that have it.
struct Found {
  unsigned key = 0;
  Total above = {};
  bool all = false;  // there are no more than were asked for
};

class Search {
 public:
  // `local`: of this block's shared memory; `histograms`: those that the blocks of a sequence share.
  __device__ Search(Histogram& local, Histogram* histograms) : local_(local), histograms_(histograms) {}

  // The shortest prefix with target(sum over all) tokens, or with that probability. Every block finds the
  // same.
  template <class Target>
  __device__ __forceinline__ Found find(SequenceShare& share, const Temperature& temperature, bool by_count,
                                        Target&& target) {
    Found found;
    Mass wanted = 0;
    for (int level = 0; level < kLevels; ++level) {
      const Histogram& global = *histograms_;
      count(share, temperature, level, found.key, *histograms_++);
      share.barrier();
      Total all = {};
      const Total own = own_bins(global), before = found.above + sum_before(own, all);
      if (level == 0) {
        wanted = target(all.mass);
        found.all = by_count && all.count <= wanted;
        if (found.all) break;
      }
      unsigned digit;
      pick_digit(global, by_count, wanted, before, own, digit, found.above);
      found.key = level == 0 ? digit : found.key << (level == 1 ? 11 : 10) | digit;
    }
    __syncthreads();
    return found;
  }

 private:
  // Thread t has the bins [last - t · kPerThread, …], the largest digits first.
  __device__ static int first_bin() { return kBins - 1 - static_cast<int>(threadIdx.x) * kPerThread; }
  __device__ static Total bin_of(const Histogram& global, int bin) {
    return {__ldcg(&global.counts[bin]), __ldcg(&global.masses[bin])};
  }
  __device__ static Total own_bins(const Histogram& global) {
    Total own = {};
    for (int i = 0; i < kPerThread; ++i) own = own + bin_of(global, first_bin() - i);
    return own;
  }

  // The sum of the threads before this one, and `all` threads'.
  __device__ static Total sum_before(Total own, Total& all) {
    __shared__ Total sums[kThreads / 32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    Total up_to = own;
    for (int step = 1; step < 32; step *= 2) {
      const Total other{__shfl_up_sync(0xffffffffu, up_to.count, step),
                        __shfl_up_sync(0xffffffffu, up_to.mass, step)};
      if (lane >= step) up_to = up_to + other;
    }
    if (lane == 31) sums[warp] = up_to;
    __syncthreads();
    for (int w = 0; w < kThreads / 32; ++w) {
      if (w < warp) up_to = up_to + sums[w];
      all = all + sums[w];
    }
    return up_to - own;
  }

  // The digit with which the wanted sum is reached; one thread has it, all are given it, and what lies above
  // it.
  __device__ static void pick_digit(const Histogram& global, bool by_count, Mass wanted, Total before,
                                    Total own, unsigned& digit, Total& above) {
    __shared__ Total shared_above;
    __shared__ unsigned shared_digit;
    if (before.get(by_count) < wanted && wanted <= (before + own).get(by_count))
      for (int i = 0; i < kPerThread; ++i) {
        const Total with = before + bin_of(global, first_bin() - i);
        if (with.get(by_count) >= wanted) {
          shared_digit = static_cast<unsigned>(first_bin() - i);
          shared_above = before;
          break;
        }
        before = with;
      }
    __syncthreads();
    digit = shared_digit;
    above = shared_above;
    __syncthreads();
  }

  // Adds this block's tokens that begin with `prefix` to a histogram of their next digit.
  __device__ void count(const SequenceShare& share, const Temperature& temperature, int level,
                        unsigned prefix, Histogram& global) {
    const int shift = shift_of(level), width = level == kLevels - 1 ? 10 : 11;
    for (int i = threadIdx.x; i < kBins; i += blockDim.x) {
      local_.counts[i] = 0;
      local_.masses[i] = 0;
    }
    __syncthreads();
    const int lane = threadIdx.x % 32;
    for (int start = share.begin; start < share.end; start += blockDim.x) {
      const int i = start + threadIdx.x;
      const unsigned key = i < share.end ? share.keys[i] : 0;
      const bool inside = i < share.end && (level == 0 || key >> (shift + width) == prefix);
      const Mass mass = inside ? temperature.mass_of(key) : 0;
      // Lanes with the same digit add once: many tokens share a digit.
      const unsigned bin = mass > 0 ? key >> shift & ((1u << width) - 1) : kBins;
      const unsigned peers = __match_any_sync(0xffffffffu, bin);
      if (bin == kBins) continue;
      const unsigned low = __reduce_add_sync(peers, static_cast<unsigned>(mass & 0x1fffff));
      const unsigned high = __reduce_add_sync(peers, static_cast<unsigned>(mass >> 21));
      if (lane != __ffs(peers) - 1) continue;
      atomicAdd(&local_.counts[bin], static_cast<unsigned>(__popc(peers)));
      atomicAdd(&local_.masses[bin], (Mass{high} << 21) + low);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < kBins; i += blockDim.x) {
      if (local_.counts[i] == 0) continue;
      atomicAdd(&global.counts[i], local_.counts[i]);
      atomicAdd(&global.masses[i], local_.masses[i]);
    }
  }

  Histogram& local_;
  Histogram* histograms_;  // the next of those that the blocks share
};

}  // namespace temper::backends
