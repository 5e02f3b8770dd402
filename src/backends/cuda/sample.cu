// The next token of each sequence of which not all tokens stay (sample_in_order.cu has the others), exactly as if the
// vocabulary were sorted by score, without sorting. A few blocks share a sequence and meet at barriers; tokens are found
// by their rank or by the probability before them, digit by digit of the score, from histograms. The barriers
// are for blocks that all run: the launch is cooperative, one block on each multiprocessor, so that it fails rather than
// hangs where they do not fit.
#include "backends/cuda/sample_cut.h"
#include "ops/sample/sample.h"

namespace temper::backends {
namespace {

using ops::Sample;
using ops::SamplingOptions;

struct Arguments {
  const SamplingOptions* options;
  uint8_t* seen;
  int *positions, *ids, *chosen;
  float* kept;
  Shared* shared;      // [sequences]
  unsigned* keys;      // [sequences, vocab]: scores as numbers of the same order
  unsigned* arrivals;  // [sequences], zero
  int vocab;
};

// A prefix of the tokens sorted by score: those above `key`, and some that have it.
struct Found {
  unsigned key = 0;
  Mass mass_above = 0, count_above = 0;
  bool all = false;  // there are no more than were asked for
};

// A block's share in the choice for one sequence.
class Chooser {
 public:
  __device__ Chooser(const Arguments& a, Histogram& local)
      : a_(a),
        local_(local),
        row_(blockIdx.y),
        options_(a.options[blockIdx.y]),
        shared_(a.shared[blockIdx.y]),
        keys_(a.keys + int64_t{blockIdx.y} * a.vocab) {
    const int size = (a.vocab + gridDim.x - 1) / gridDim.x;
    begin_ = min(static_cast<int>(blockIdx.x) * size, a.vocab);
    end_ = min(begin_ + size, a.vocab);
  }

  template <class T>
  __device__ void run(const T* logits);

 private:
  __device__ void barrier() {
    ++round_;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
      atomicAdd(a_.arrivals + row_, 1u);
      while (*static_cast<volatile unsigned*>(a_.arrivals + row_) < round_ * gridDim.x) {
      }
      __threadfence();
    }
    __syncthreads();
  }
  template <class T>
  __device__ void read(const T* logits);
  __device__ Mass mass_of(unsigned key) const { return mass_of_score(score_of(key), best_, inverse_temperature_); }
  __device__ void count(int level, unsigned prefix, Histogram& global);
  template <class Target>
  __device__ Found search(bool by_count, Target&& target);
  __device__ void choose_among_equals(unsigned key, Mass rank, int position);
  __device__ void keep_likely();
  __device__ void finish(int chosen, int position) const {
    const int id = max(chosen, 0);
    a_.ids[row_] = id;
    a_.chosen[row_] = chosen;
    // Of sums of the same units: 0 where none is left out.
    a_.kept[row_] = all_ == 0 ? 0 : static_cast<float>(log(static_cast<double>(kept_) / static_cast<double>(all_)));
    a_.positions[row_] = position;
    a_.seen[int64_t{row_} * a_.vocab + id] = 1;
  }

  const Arguments& a_;
  Histogram& local_;
  const int row_;
  const SamplingOptions options_;
  Shared& shared_;
  unsigned* const keys_;
  int begin_, end_;
  float best_ = 0, inverse_temperature_ = 0;
  Mass kept_ = 0;  // the sum over the tokens that stay; 0: not known yet
  Mass all_ = 0;   // the sum over all tokens; 0: nothing is chosen by probability
  unsigned round_ = 0;
  int next_ = 0;  // histogram
};

// Scores, and the best of this block.
template <class T>
__device__ void Chooser::read(const T* logits) {
  __shared__ Mass bests[kThreads / 32];
  const uint8_t* seen = a_.seen + int64_t{row_} * a_.vocab;
  const bool penalize = options_.repetition_penalty != 1;
  Mass best = 0;
  for (int i = begin_ + threadIdx.x; i < end_; i += blockDim.x) {
    float score = widen(logits[i]);
    if (penalize && seen[i] != 0) score = penalized(score, options_.repetition_penalty);
    const unsigned key = key_of(score);
    keys_[i] = key;
    const Mass packed = Mass{key} << 32 | ~static_cast<unsigned>(i);
    best = packed > best ? packed : best;
  }
  for (int other = 16; other > 0; other /= 2) {
    const Mass there = __shfl_xor_sync(0xffffffffu, best, other);
    best = there > best ? there : best;
  }
  if (threadIdx.x % 32 == 0) bests[threadIdx.x / 32] = best;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int w = 1; w < kThreads / 32; ++w) best = bests[w] > best ? bests[w] : best;
    shared_.best[blockIdx.x] = best;
  }
}

// Adds this block's tokens that begin with `prefix` to a histogram of their next digit.
__device__ void Chooser::count(int level, unsigned prefix, Histogram& global) {
  const int shift = shift_of(level), width = level == kLevels - 1 ? 10 : 11;
  for (int i = threadIdx.x; i < kBins; i += blockDim.x) {
    local_.counts[i] = 0;
    local_.masses[i] = 0;
  }
  __syncthreads();
  const int lane = threadIdx.x % 32;
  for (int start = begin_; start < end_; start += blockDim.x) {
    const int i = start + threadIdx.x;
    const unsigned key = i < end_ ? keys_[i] : 0;
    const bool inside = i < end_ && (level == 0 || key >> (shift + width) == prefix);
    const Mass mass = inside ? mass_of(key) : 0;
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

// The shortest prefix with target(sum over all) tokens, or with that probability. Every block finds the same.
template <class Target>
__device__ Found Chooser::search(bool by_count, Target&& target) {
  __shared__ Mass sums[2][kThreads / 32];
  __shared__ Mass count_above, mass_above;
  __shared__ unsigned digit;
  Found found;
  Mass wanted = 0;
  for (int level = 0; level < kLevels; ++level) {
    Histogram& global = shared_.histograms[next_++];
    count(level, found.key, global);
    barrier();
    // Thread t has the bins [last - t · kPerThread, …], the largest digits first.
    const int first = kBins - 1 - static_cast<int>(threadIdx.x) * kPerThread;
    Mass counts = 0, masses = 0;
    for (int i = 0; i < kPerThread; ++i) {
      counts += __ldcg(&global.counts[first - i]);
      masses += __ldcg(&global.masses[first - i]);
    }
    // Sums of the threads up to this one.
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    Mass counts_to = counts, masses_to = masses;
    for (int step = 1; step < 32; step *= 2) {
      const Mass c = __shfl_up_sync(0xffffffffu, counts_to, step), m = __shfl_up_sync(0xffffffffu, masses_to, step);
      if (lane >= step) {
        counts_to += c;
        masses_to += m;
      }
    }
    if (lane == 31) {
      sums[0][warp] = counts_to;
      sums[1][warp] = masses_to;
    }
    __syncthreads();
    Mass all_counts = 0, all_masses = 0;
    for (int w = 0; w < kThreads / 32; ++w) {
      if (w < warp) {
        counts_to += sums[0][w];
        masses_to += sums[1][w];
      }
      all_counts += sums[0][w];
      all_masses += sums[1][w];
    }
    if (level == 0) {
      if (all_ == 0) all_ = kept_ = all_masses;
      wanted = target();
      if (by_count && all_counts <= wanted) {
        found.all = true;
        __syncthreads();
        return found;
      }
    }
    Mass count_before = found.count_above + counts_to - counts, mass_before = found.mass_above + masses_to - masses;
    const Mass before = by_count ? count_before : mass_before;
    if (before < wanted && wanted <= before + (by_count ? counts : masses)) {
      for (int i = 0; i < kPerThread; ++i) {
        const Mass c = __ldcg(&global.counts[first - i]), m = __ldcg(&global.masses[first - i]);
        if ((by_count ? count_before + c : mass_before + m) >= wanted) {
          digit = static_cast<unsigned>(first - i);
          count_above = count_before;
          mass_above = mass_before;
          break;
        }
        count_before += c;
        mass_before += m;
      }
    }
    __syncthreads();
    found.count_above = count_above;
    found.mass_above = mass_above;
    found.key = level == 0 ? digit : found.key << (level == 1 ? 11 : 10) | digit;
    __syncthreads();
  }
  return found;
}

// Min-p: what stays is an end of the order of scores, as what top-k and top-p keep, so the smaller sum is that of all
// three.
__device__ void Chooser::keep_likely() {
  const double lowest = options_.temperature * log(options_.min_p);
  Mass all = 0, likely = 0;
  for (int i = begin_ + threadIdx.x; i < end_; i += blockDim.x) {
    const unsigned key = keys_[i];
    const Mass mass = mass_of(key);
    all += mass;
    if (static_cast<double>(score_of(key)) - static_cast<double>(best_) >= lowest) likely += mass;
  }
  for (int other = 16; other > 0; other /= 2) {
    all += __shfl_xor_sync(0xffffffffu, all, other);
    likely += __shfl_xor_sync(0xffffffffu, likely, other);
  }
  if (threadIdx.x % 32 == 0) {
    atomicAdd(&shared_.all, all);
    atomicAdd(&shared_.likely, likely);
  }
  barrier();
  likely = __ldcg(&shared_.likely);
  kept_ = all_ == 0 ? likely : min(kept_, likely);
  all_ = __ldcg(&shared_.all);
}

// The token of this rank, by id, among those with one score.
__device__ void Chooser::choose_among_equals(unsigned key, Mass rank, int position) {
  __shared__ unsigned in_warps[kThreads / 32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  unsigned mine = 0;
  for (int start = begin_; start < end_; start += blockDim.x) {
    const int i = start + threadIdx.x;
    mine += static_cast<unsigned>(__syncthreads_count(i < end_ && keys_[i] == key));
  }
  if (threadIdx.x == 0) shared_.equals[blockIdx.x] = mine;
  barrier();
  Mass before = 0;
  for (unsigned b = 0; b < blockIdx.x; ++b) before += __ldcg(&shared_.equals[b]);
  if (rank < before || rank >= before + mine) return;
  for (int start = begin_; start < end_; start += blockDim.x) {
    const int i = start + threadIdx.x;
    const bool equal = i < end_ && keys_[i] == key;
    const unsigned votes = __ballot_sync(0xffffffffu, equal);
    __syncthreads();
    if (lane == 0) in_warps[warp] = static_cast<unsigned>(__popc(votes));
    __syncthreads();
    Mass here = before + static_cast<unsigned>(__popc(votes & ((1u << lane) - 1)));
    for (int w = 0; w < kThreads / 32; ++w) {
      if (w < warp) here += in_warps[w];
      before += in_warps[w];
    }
    if (equal && here == rank) finish(i, position);
  }
}

template <class T>
__device__ void Chooser::run(const T* logits) {
  const int position = a_.positions[row_] + 1;  // read by all before anyone writes: a barrier lies between
  const bool greedy = options_.temperature <= 0;
  if (!greedy) {
    if (blockIdx.x == 0 && threadIdx.x == 0) shared_.all = shared_.likely = 0;
    auto* words = reinterpret_cast<unsigned*>(shared_.histograms);
    constexpr int kWords = sizeof(shared_.histograms) / 4;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < kWords; i += gridDim.x * blockDim.x) words[i] = 0;
  }
  read(logits);
  barrier();
  Mass best = 0;
  for (unsigned b = 0; b < gridDim.x; ++b) {
    const Mass there = __ldcg(&shared_.best[b]);
    best = there > best ? there : best;
  }
  const unsigned largest = static_cast<unsigned>(best >> 32);
  if (largest >= kInfinityKey || largest <= kMinusInfinityKey) {  // no distribution: every block finds the same
    if (blockIdx.x == 0 && threadIdx.x == 0) finish(ops::kNoToken, position);
    return;
  }
  if (greedy) {
    if (blockIdx.x == 0 && threadIdx.x == 0) finish(static_cast<int>(~static_cast<unsigned>(best)), position);
    return;
  }
  best_ = score_of(largest);
  inverse_temperature_ = static_cast<float>(1 / options_.temperature);
  if (options_.top_k > 0 && options_.top_k < a_.vocab) {
    const Found cut = search(true, [&] { return static_cast<Mass>(options_.top_k); });
    if (!cut.all)
      kept_ = cut.mass_above + (static_cast<Mass>(options_.top_k) - cut.count_above) * mass_of(cut.key);
  }
  if (options_.top_p < 1) {
    const Found cut = search(false, [&] {
      const Mass wanted = static_cast<Mass>(ceil(options_.top_p * static_cast<double>(kept_)));
      return min(max(wanted, Mass{1}), kept_);
    });
    const Mass wanted = min(max(static_cast<Mass>(ceil(options_.top_p * static_cast<double>(kept_))), Mass{1}), kept_);
    const Mass each = mass_of(cut.key);
    kept_ = cut.mass_above + (wanted - cut.mass_above + each - 1) / each * each;
  }
  if (options_.min_p > 0) keep_likely();
  const double uniform = uniform_at(options_.seed, position);
  const auto point = [&] { return point_of(uniform, kept_); };
  const Found chosen = search(false, [&] { return point() + 1; });
  choose_among_equals(chosen.key, (point() - chosen.mass_above) / mass_of(chosen.key), position);
}

template <class T>
__global__ void __launch_bounds__(kThreads) choose(const T* logits, Arguments a) {
  __shared__ Histogram local;
  if (keeps_all(a.options[blockIdx.y], a.vocab)) return;
  Chooser chooser(a, local);
  chooser.run(logits + int64_t{blockIdx.y} * a.vocab);
}

// As many sequences as fit on the GPU at once: blocks that wait for each other must all run.
void launch(const Sample& op, int64_t first, int64_t sequences, int64_t blocks) {
  const Device device = op.logits.device();
  const int64_t vocab = op.logits.dim(1);
  const auto bytes = [&](int64_t count) {
    return Tensor::empty({count}, DType::kU8, MemoryTag::kWorkspace, device);
  };
  const Tensor shared = bytes(sequences * static_cast<int64_t>(sizeof(Shared))), keys = bytes(sequences * vocab * 4),
               arrivals = bytes(sequences * 4);
  arrivals.fill_zero();
  Arguments arguments{static_cast<const SamplingOptions*>(op.options.raw()) + first,
                      op.seen.data<uint8_t>() + first * vocab,
                      op.positions.data<int32_t>() + first,
                      op.ids.data<int32_t>() + first,
                      op.chosen.data<int32_t>() + first,
                      op.kept.data<float>() + first,
                      static_cast<Shared*>(shared.raw()),
                      static_cast<unsigned*>(keys.raw()),
                      static_cast<unsigned*>(arrivals.raw()),
                      static_cast<int>(vocab)};
  visit_wide_or_brain(op.logits.dtype(), [&]<class T>() {
    const T* logits = static_cast<const T*>(op.logits.raw()) + first * vocab;
    void* parameters[] = {&logits, &arguments};
    const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(sequences));
    device::check(cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(choose<T>), grid, dim3(kThreads),
                                              parameters, 0, device::stream(device)),
                  "sample");
  });
}

void forward(const Sample& op) {
  choose_in_order(op);
  const int64_t sequences = op.logits.dim(0), at_once = device::multiprocessors(op.logits.device());
  for (int64_t first = 0; first < sequences; first += at_once) {
    const int64_t count = std::min(sequences - first, at_once);
    launch(op, first, count, std::clamp<int64_t>(at_once / count, 1, kMostBlocks));
  }
}

ops::Refusal accepts(const Sample::Signature& s, const HardwareFacts&) {
  if (s.dtype == DType::kF16) return "dtype must be float32 or bfloat16";
  if (s.vocab < 1 || s.vocab > 1 << 20) return fmt::format("the vocabulary must be at most {}, is {}", 1 << 20, s.vocab);
  return std::nullopt;
}

}  // namespace

void register_cuda_sample() {
  ops::kernels<Sample>().add("cuda", {.hardware = hardware::kGpu, .accepts = accepts, .forward = forward});
}

}  // namespace temper::backends
