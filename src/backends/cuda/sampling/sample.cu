// The next token of each sequence of which not all tokens stay (sample_in_order.cu has the others), exactly as if the
// vocabulary were sorted by score, without sorting. A few blocks share a sequence and meet at barriers; tokens are found
// by their rank or by the probability before them, digit by digit of the score, from histograms. The barriers
// are for blocks that all run: the launch is cooperative, one block on each multiprocessor, so that it fails rather than
// hangs where they do not fit.
#include "backends/cuda/sampling/sample_search.h"
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
  unsigned* keys;      // [sequences, vocab]
  unsigned* arrivals;  // [sequences], zero
  int vocab;
};

// A block's share in the choice for one sequence.
class Chooser {
 public:
  __device__ Chooser(const Arguments& a, Histogram& local)
      : a_(a),
        row_(blockIdx.y),
        options_(a.options[blockIdx.y]),
        shared_(a.shared[blockIdx.y]),
        share_(a.keys + int64_t{blockIdx.y} * a.vocab, a.arrivals + blockIdx.y, a.vocab),
        search_(local, shared_.histograms) {}

  template <class T>
  __device__ void run(const T* logits);

 private:
  template <class T>
  __device__ void read(const T* logits);
  __device__ Mass best_of_all() const;
  __device__ void clear_histograms();
  __device__ void keep_highest();
  __device__ void keep_nucleus();
  __device__ void keep_likely();
  template <class Target>
  __device__ Found find(bool by_count, Target&& target);
  __device__ void choose_among_equals(unsigned key, Mass rank, int position);
  __device__ void finish(int chosen, int position) const;

  const Arguments& a_;
  const int row_;
  const SamplingOptions options_;
  Shared& shared_;
  SequenceShare share_;
  Temperature temperature_;
  Search search_;
  Mass kept_ = 0;  // the sum over the tokens that stay; 0: not known yet
  Mass all_ = 0;   // the sum over all tokens; 0: nothing is chosen by probability
};

__device__ void Chooser::finish(int chosen, int position) const {
  const int id = max(chosen, 0);
  a_.ids[row_] = id;
  a_.chosen[row_] = chosen;
  // Of sums of the same units: 0 where none is left out.
  a_.kept[row_] = all_ == 0 ? 0 : static_cast<float>(log(static_cast<double>(kept_) / static_cast<double>(all_)));
  a_.positions[row_] = position;
  a_.seen[int64_t{row_} * a_.vocab + id] = 1;
}

// Scores, and the best of this block.
template <class T>
__device__ void Chooser::read(const T* logits) {
  __shared__ Mass bests[kThreads / 32];
  const uint8_t* seen = a_.seen + int64_t{row_} * a_.vocab;
  const bool penalize = options_.repetition_penalty != 1;
  Mass best = 0;
  for (int i = share_.begin + threadIdx.x; i < share_.end; i += blockDim.x) {
    float score = widen(logits[i]);
    if (penalize && seen[i] != 0) score = penalized(score, options_.repetition_penalty);
    const unsigned key = key_of(score);
    share_.keys[i] = key;
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

// As Search::find(); the first sum over all tokens is kept.
template <class Target>
__device__ Found Chooser::find(bool by_count, Target&& target) {
  return search_.find(share_, temperature_, by_count, [&](Mass all) {
    if (all_ == 0) all_ = kept_ = all;
    return target();
  });
}

// Top-k.
__device__ void Chooser::keep_highest() {
  const auto most = static_cast<Mass>(options_.top_k);
  const Found cut = find(true, [&] { return most; });
  if (!cut.all) kept_ = cut.above.mass + (most - cut.above.count) * temperature_.mass_of(cut.key);
}

// Top-p: with a token all that are as likely.
__device__ void Chooser::keep_nucleus() {
  const auto wanted = [&] {
    const auto share = static_cast<Mass>(ceil(options_.top_p * static_cast<double>(kept_)));
    return min(max(share, Mass{1}), kept_);
  };
  const Found cut = find(false, wanted);
  const Mass each = temperature_.mass_of(cut.key);
  kept_ = cut.above.mass + (wanted() - cut.above.mass + each - 1) / each * each;
}

// Min-p: what stays is an end of the order of scores, as what top-k and top-p keep, so the smaller sum is that of all
// three.
__device__ void Chooser::keep_likely() {
  const double lowest = options_.temperature * log(options_.min_p);
  Mass all = 0, likely = 0;
  for (int i = share_.begin + threadIdx.x; i < share_.end; i += blockDim.x) {
    const unsigned key = share_.keys[i];
    const Mass mass = temperature_.mass_of(key);
    all += mass;
    if (static_cast<double>(score_of(key)) - static_cast<double>(temperature_.best) >= lowest) likely += mass;
  }
  for (int other = 16; other > 0; other /= 2) {
    all += __shfl_xor_sync(0xffffffffu, all, other);
    likely += __shfl_xor_sync(0xffffffffu, likely, other);
  }
  if (threadIdx.x % 32 == 0) {
    atomicAdd(&shared_.all, all);
    atomicAdd(&shared_.likely, likely);
  }
  share_.barrier();
  likely = __ldcg(&shared_.likely);
  kept_ = all_ == 0 ? likely : min(kept_, likely);
  all_ = __ldcg(&shared_.all);
}

// The token of this rank, by id, among those with one score.
__device__ void Chooser::choose_among_equals(unsigned key, Mass rank, int position) {
  __shared__ unsigned in_warps[kThreads / 32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  unsigned mine = 0;
  for (int start = share_.begin; start < share_.end; start += blockDim.x) {
    const int i = start + threadIdx.x;
    mine += static_cast<unsigned>(__syncthreads_count(i < share_.end && share_.keys[i] == key));
  }
  if (threadIdx.x == 0) shared_.equals[blockIdx.x] = mine;
  share_.barrier();
  Mass before = 0;
  for (unsigned b = 0; b < blockIdx.x; ++b) before += __ldcg(&shared_.equals[b]);
  if (rank < before || rank >= before + mine) return;
  for (int start = share_.begin; start < share_.end; start += blockDim.x) {
    const int i = start + threadIdx.x;
    const bool equal = i < share_.end && share_.keys[i] == key;
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

__device__ void Chooser::clear_histograms() {
  if (blockIdx.x == 0 && threadIdx.x == 0) shared_.all = shared_.likely = 0;
  auto* words = reinterpret_cast<unsigned*>(shared_.histograms);
  constexpr int kWords = sizeof(shared_.histograms) / 4;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < kWords; i += gridDim.x * blockDim.x) words[i] = 0;
}

__device__ Mass Chooser::best_of_all() const {
  Mass best = 0;
  for (unsigned b = 0; b < gridDim.x; ++b) {
    const Mass there = __ldcg(&shared_.best[b]);
    best = there > best ? there : best;
  }
  return best;
}

template <class T>
__device__ void Chooser::run(const T* logits) {
  const int position = a_.positions[row_] + 1;  // read by all before anyone writes: a barrier lies between
  const bool greedy = options_.temperature <= 0;
  if (!greedy) clear_histograms();
  read(logits);
  share_.barrier();
  const Mass best = best_of_all();
  const unsigned largest = static_cast<unsigned>(best >> 32);
  const bool none = largest >= kInfinityKey || largest <= kMinusInfinityKey;  // no distribution: every block finds the same
  if (none || greedy) {
    if (blockIdx.x == 0 && threadIdx.x == 0)
      finish(none ? ops::kNoToken : static_cast<int>(~static_cast<unsigned>(best)), position);
    return;
  }
  temperature_ = {score_of(largest), static_cast<float>(1 / options_.temperature)};
  if (options_.top_k > 0 && options_.top_k < a_.vocab) keep_highest();
  if (options_.top_p < 1) keep_nucleus();
  if (options_.min_p > 0) keep_likely();
  const double uniform = uniform_at(options_.seed, position);
  const auto point = [&] { return point_of(uniform, kept_); };
  const Found chosen = find(false, [&] { return point() + 1; });
  choose_among_equals(chosen.key, (point() - chosen.above.mass) / temperature_.mass_of(chosen.key), position);
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
