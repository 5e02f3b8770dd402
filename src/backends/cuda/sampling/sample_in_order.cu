// Rows of which all tokens stay: the random number names a unit of their probabilities, one after the other by id. A block
// passes over a row twice, for the largest score and for the sums of its warps, each of which has a part of the row; the
// warp that holds the unit then looks for it.
#include "backends/cuda/sampling/sample_scores.h"

namespace temper::backends {
namespace {

using ops::Sample;

constexpr int kWarps = 16, kBlock = kWarps * 32;
constexpr unsigned kAll = 0xffffffffu;

struct Arguments {
  const ops::SamplingOptions* options;
  uint8_t* seen;
  int *positions, *ids, *chosen;
  float* kept;
  int vocab;
};

// A warp's part of a row: steps of 32 packs, from `begin` on.
struct Part {
  int begin, end;
};
template <int N>
__device__ Part part_of(int vocab) {
  constexpr int kStep = 32 * N;
  const int size = (vocab + kStep * kWarps - 1) / (kStep * kWarps) * kStep, warp = threadIdx.x / 32;
  return {min(warp * size, vocab), min((warp + 1) * size, vocab)};
}

// The scores of a row.
template <class T, int N>
struct Scores {
  const T* logits;
  const uint8_t* seen;  // null: no sequence has a penalty
  double penalty;

  __device__ void load(int first, float (&scores)[N]) const {
    widen_all(load_pack<T, N>(logits + first), scores);
    if (seen == nullptr) return;
    for (int k = 0; k < N; ++k)
      if (seen[first + k] != 0) scores[k] = penalized(scores[k], penalty);
  }
};

// The largest score and its first id, as one number; NaN is the largest of all.
template <class T, int N>
__device__ Mass largest_of(const Scores<T, N>& row, const Part& part) {
  float best = -INFINITY;
  int id = part.begin;
  bool is_nan = false;
#pragma unroll 4
  for (int i = part.begin + threadIdx.x % 32 * N; i < part.end; i += 32 * N) {
    float scores[N];
    row.load(i, scores);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      is_nan = is_nan || scores[k] != scores[k];
      if (scores[k] > best) {
        best = scores[k];
        id = i + k;
      }
    }
  }
  const unsigned key = is_nan ? kNaNKey : key_of(best);
  return Mass{key} << 32 | ~static_cast<unsigned>(id);
}

// The probabilities of a row's tokens.
template <class T, int N>
struct Masses {
  const Scores<T, N>& scores;
  float best, inverse_temperature;

  __device__ Mass load(int first, Mass (&masses)[N]) const {  // their sum
    float own[N];
    scores.load(first, own);
    Mass sum = 0;
#pragma unroll
    for (int k = 0; k < N; ++k) sum += masses[k] = mass_of_score(own[k], best, inverse_temperature);
    return sum;
  }
};

// By one warp: the id whose unit `point` is, where units up to the part are `before`, in the lane that has it, else -1.
template <class T, int N>
__device__ int find_unit(const Masses<T, N>& row, const Part& part, Mass before, Mass point) {
  const int lane = threadIdx.x % 32;
  for (int i = part.begin; i < part.end; i += 32 * N) {
    const int mine = i + lane * N;
    Mass masses[N];
    const Mass sum = mine < part.end ? row.load(mine, masses) : 0;
    Mass to = sum;  // of the lanes up to this one
    for (int step = 1; step < 32; step *= 2) {
      const Mass there = __shfl_up_sync(kAll, to, step);
      if (lane >= step) to += there;
    }
    const Mass all = __shfl_sync(kAll, to, 31);
    if (point < before + all) {
      Mass from = before + to - sum;
      if (point < from || point >= from + sum) return -1;
      int k = 0;
      while (point >= from + masses[k]) from += masses[k++];
      return mine + k;
    }
    before += all;
  }
  return -1;
}

template <class T, int N>
__global__ void __launch_bounds__(kBlock, 2) choose(const T* logits, Arguments a) {
  const int row = blockIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const ops::SamplingOptions options = a.options[row];
  if (!keeps_all(options, a.vocab)) return;
  const bool penalizes = options.repetition_penalty != 1;
  const Scores<T, N> own{logits + int64_t{row} * a.vocab, penalizes ? a.seen + int64_t{row} * a.vocab : nullptr,
                         options.repetition_penalty};
  const Part part = part_of<N>(a.vocab);
  const auto finish = [&](int chosen) {
    const int id = max(chosen, 0);
    a.ids[row] = id;
    a.chosen[row] = chosen;
    a.kept[row] = 0;
    a.positions[row] += 1;
    a.seen[int64_t{row} * a.vocab + id] = 1;
  };

  __shared__ Mass of_warps[kWarps];
  const auto share = [&](Mass value) {
    __syncthreads();
    if (lane == 0) of_warps[warp] = value;
    __syncthreads();
  };
  Mass best = largest_of(own, part);
  for (int other = 16; other > 0; other /= 2) {
    const Mass there = __shfl_xor_sync(kAll, best, other);
    best = there > best ? there : best;
  }
  share(best);
  for (const Mass there : of_warps) best = there > best ? there : best;
  const auto largest = static_cast<unsigned>(best >> 32);
  if (largest >= kInfinityKey || largest <= kMinusInfinityKey) {  // no distribution
    if (threadIdx.x == 0) finish(ops::kNoToken);
    return;
  }
  if (options.temperature <= 0) {
    if (threadIdx.x == 0) finish(static_cast<int>(~static_cast<unsigned>(best)));
    return;
  }

  const Masses<T, N> masses{own, score_of(largest), static_cast<float>(1 / options.temperature)};
  Mass sum = 0, some[N];
#pragma unroll 2
  for (int i = part.begin + lane * N; i < part.end; i += 32 * N) sum += masses.load(i, some);
  for (int other = 16; other > 0; other /= 2) sum += __shfl_xor_sync(kAll, sum, other);
  share(sum);
  Mass kept = 0, before = 0;
  for (int w = 0; w < kWarps; ++w) {
    before += w < warp ? of_warps[w] : 0;
    kept += of_warps[w];
  }
  const Mass point = point_of(uniform_at(options.seed, a.positions[row] + 1), kept);
  __syncthreads();  // before anyone moves the position on
  if (point < before || point >= before + sum) return;
  if (const int id = find_unit(masses, part, before, point); id >= 0) finish(id);
}

}  // namespace

void choose_in_order(const Sample& op) {
  const Device device = op.logits.device();
  const int64_t rows = op.logits.dim(0), vocab = op.logits.dim(1);
  if (rows == 0) return;
  const Arguments arguments{static_cast<const ops::SamplingOptions*>(op.options.raw()),
                            op.seen.data<uint8_t>(),
                            op.positions.data<int32_t>(),
                            op.ids.data<int32_t>(),
                            op.chosen.data<int32_t>(),
                            op.kept.data<float>(),
                            static_cast<int>(vocab)};
  visit_wide_or_brain(op.logits.dtype(), [&]<class T>() {
    const auto* const logits = static_cast<const T*>(op.logits.raw());
    const auto launch = [&]<int N>() {
      choose<T, N><<<static_cast<unsigned>(rows), kBlock, 0, device::stream(device)>>>(logits, arguments);
    };
    vocab % kLanes<T> == 0 && is_aligned(op.logits) ? launch.template operator()<kLanes<T>>()
                                                    : launch.template operator()<1>();
  });
  device::check_launch("sample");
}

}  // namespace temper::backends
