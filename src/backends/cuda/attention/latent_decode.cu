// The query of each head is brought to the width of the cache once (absorb); then the cache of a sequence passes by,
// cut into splits of its positions, each row for several heads (attend); what the splits found is merged in their
// order and expanded to the head's values (expand). All depends on the sequence's length alone, so that a sequence's
// results have the same bits whatever other sequences are in the batch, and wherever its pages lie.
#include "backends/cuda/attention/latent_decode.h"
#include "backends/cuda/attention/page_shift.h"
#include "ops/latent_decode/latent_decode.h"
#include "tensor/host_inputs.h"

namespace temper::backends {
namespace {

using ops::LatentDecode;

constexpr int kWarps = 8;
constexpr int kHeads = 2;         // of a block, which share the rows that are read
constexpr int kAtOnce = 2;        // rows whose loads are in flight together
constexpr int kColumns = 64;      // of absorb's block
constexpr int kRows = 32;         // of expand's block
constexpr int kMostPacks = 9;     // pairs of a row that a lane holds

// A block: one sequence and head, some columns. Each warp adds up every kWarps-th row.
template <class T>
__global__ void __launch_bounds__(kWarps * 32) absorb(LatentArguments<T> a) {
  extern __shared__ float shared[];  // [nope + low], then [warps, columns]
  const int sequence = blockIdx.z, head = blockIdx.y, first = blockIdx.x * kColumns;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, width = a.width();
  float *const query = shared, *const low = query + a.nope, *const sums = low + a.low;
  const T* q = a.q + (int64_t{sequence} * a.heads + head) * (a.nope + a.rope);
  for (int i = threadIdx.x; i < a.nope; i += blockDim.x) query[i] = widen(q[i]);
  __syncthreads();
  if (a.low > 0) {
    for (int i = threadIdx.x; i < a.low; i += blockDim.x) {
      float sum = 0;
      for (int row = 0; row < a.nope; ++row) sum += query[row] * widen(a.b[(a.row(head) + row) * a.low + i]);
      low[i] = a.update_scale * sum;
    }
    __syncthreads();
  }
  float mine[kColumns / 32] = {};
#pragma unroll 4
  for (int row = warp; row < a.nope; row += kWarps)
#pragma unroll
    for (int c = 0; c < kColumns / 32; ++c) {
      const int column = first + lane + 32 * c;
      if (column < a.rank) mine[c] += query[row] * widen(a.weight[(a.row(head) + row) * a.rank + column]);
    }
  for (int row = warp; row < a.low; row += kWarps)
#pragma unroll
    for (int c = 0; c < kColumns / 32; ++c) {
      const int column = first + lane + 32 * c;
      if (column < a.rank) mine[c] += low[row] * widen(a.a[int64_t{row} * a.rank + column]);
    }
#pragma unroll
  for (int c = 0; c < kColumns / 32; ++c) sums[warp * kColumns + lane + 32 * c] = mine[c];
  __syncthreads();
  for (int i = threadIdx.x; i < kColumns; i += blockDim.x) {
    const int column = first + i;
    if (column >= width) continue;
    float sum = 0;
    for (int w = 0; w < kWarps; ++w) sum += sums[w * kColumns + i];
    if (column >= a.rank) sum = widen(q[a.nope + column - a.rank]);
    a.absorbed[(int64_t{sequence} * a.heads + head) * width + column] = sum * a.scale;
  }
}

// Some heads' queries and what a warp finds for them in a split: of a row, a lane has N neighbours in each of P packs.
template <class T, int N, int P>
class WarpHeads {
 public:
  using Rows = Pack<T, N>[kAtOnce][P];

  __device__ WarpHeads(const float* queries, int count, int width) {
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      largest_[h] = kNoScore;
      each([&](int i, int column) { q_[h][i] = h < count && column < width ? queries[h * width + column] : 0.f; });
    }
  }

  // Of the rows as many as `there` says.
  __device__ void attend(const Rows& rows, const bool (&there)[kAtOnce]) {
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      float scores[kAtOnce], largest = largest_[h];
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        float dot = 0;
        each([&](int i, int) { dot += q_[h][i] * widen(rows[u][i / N].values[i % N]); });
        dot = warp_sum(dot);
        scores[u] = there[u] ? dot : kNoScore;
        largest = fmaxf(largest, scores[u]);
      }
      const float shrink = power_below(largest_[h], largest);
      largest_[h] = largest;
      sum_[h] *= shrink;
#pragma unroll
      for (int i = 0; i < P * N; ++i) y_[h][i] *= shrink;
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        const float weight = there[u] ? power_below(scores[u], largest) : 0.f;
        sum_[h] += weight;
        each([&](int i, int) { y_[h][i] += weight * widen(rows[u][i / N].values[i % N]); });
      }
    }
  }

  // to: [heads, rank + 2], each with its largest score and the sum of its weights first.
  __device__ void store(float* to, int rank) const {
#pragma unroll
    for (int h = 0; h < kHeads; ++h, to += rank + 2) {
      if (threadIdx.x % 32 == 0) {
        to[0] = largest_[h];
        to[1] = sum_[h];
      }
      each([&](int i, int column) {
        if (column < rank) to[2 + column] = y_[h][i];
      });
    }
  }

 private:
  // f(number among the lane's, column of the row)
  template <class F>
  __device__ static void each(F&& f) {
#pragma unroll
    for (int p = 0; p < P; ++p)
#pragma unroll
      for (int i = 0; i < N; ++i) f(p * N + i, (p * 32 + static_cast<int>(threadIdx.x) % 32) * N + i);
  }

  float q_[kHeads][P * N], y_[kHeads][P * N] = {};
  float largest_[kHeads], sum_[kHeads] = {};
};

// What the warps of a block found, added up in their order; as WarpHeads::store() lays it out, one after the other.
template <class T>
__device__ void merge_warps(const LatentArguments<T>& a, const float* warps, int sequence, int first_head, int split) {
  const int size = a.rank + 2, count = min(kHeads, a.heads - first_head);
  for (int h = 0; h < count; ++h) {
    float largest = kNoScore;
    for (int w = 0; w < kWarps; ++w) largest = fmaxf(largest, warps[(w * kHeads + h) * size]);
    float* to = a.split_of(sequence, first_head + h, split);
    for (int i = threadIdx.x; i < size; i += blockDim.x) {
      float sum = 0;
      for (int w = 0; w < kWarps; ++w) {
        const float* row = warps + (w * kHeads + h) * size;
        sum += power_below(row[0], largest) * row[i];
      }
      to[i] = i == 0 ? largest : sum;
    }
  }
}

// A block: one sequence, kHeads heads, one split. A warp reads kAtOnce rows at once.
template <class T, int N, int P>
__global__ void __launch_bounds__(kWarps * 32) attend(LatentArguments<T> a) {
  const int sequence = blockIdx.z, split = blockIdx.x, first_head = blockIdx.y * kHeads;
  const int length = a.lengths[sequence], width = a.width();
  if (length < 0 || length >= a.capacity) return;
  const LatentSplits splits = latent_splits(length + 1);
  if (split >= splits.used) return;
  const int begin = split * splits.size, end = min(begin + splits.size, length + 1);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const T* const latent = a.latent + int64_t{sequence} * width;
  WarpHeads<T, N, P> heads(a.absorbed + (int64_t{sequence} * a.heads + first_head) * width,
                           min(kHeads, a.heads - first_head), width);
  for (int base = begin; base < end; base += kWarps * kAtOnce) {
    Pack<T, N> rows[kAtOnce][P];
    bool there[kAtOnce];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const int position = base + u * kWarps + warp;
      there[u] = position < end;
      // The new token comes from its own place.
      const T* from = position >= length ? latent : a.row_at(sequence, position);
#pragma unroll
      for (int p = 0; p < P; ++p) {
        const int column = (p * 32 + lane) * N;
        rows[u][p] = {};
        if (!there[u] || column >= width) continue;
        rows[u][p] = load_pack<T, N>(from + column);
        if (position == length && blockIdx.y == 0)
          store_pack(a.row_at(sequence, position) + column, rows[u][p]);
      }
    }
    heads.attend(rows, there);
  }
  extern __shared__ float shared[];  // [warps, heads, rank + 2]
  heads.store(shared + warp * kHeads * (a.rank + 2), a.rank);
  __syncthreads();
  merge_warps(a, shared, sequence, first_head, split);
}

// A block: one sequence and head, some rows of its values.
template <class T>
__global__ void __launch_bounds__(kWarps * 32) expand(LatentArguments<T> a) {
  extern __shared__ float shared[];  // [rank], then [low]
  __shared__ float factors[kLatentSplits];  // what each split counts
  const int sequence = blockIdx.z, head = blockIdx.y, length = a.lengths[sequence];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, size = a.rank + 2;
  if (length < 0 || length >= a.capacity) return;
  const int used = latent_splits(length + 1).used;
  const float* partial = a.split_of(sequence, head, 0);
  if (warp == 0) {
    float largest = kNoScore, sum = 0;
    for (int split = lane; split < used; split += 32) largest = fmaxf(largest, partial[int64_t{split} * size]);
    largest = warp_max(largest);
    for (int split = lane; split < used; split += 32) {
      factors[split] = power_below(partial[int64_t{split} * size], largest);
      sum += factors[split] * partial[int64_t{split} * size + 1];
    }
    sum = warp_sum(sum);
    for (int split = lane; split < used; split += 32) factors[split] /= sum;
  }
  __syncthreads();
  float *const mixed = shared, *const low = mixed + a.rank;
  for (int i = threadIdx.x; i < a.rank; i += blockDim.x) {
    float value = 0;
#pragma unroll 16
    for (int split = 0; split < used; ++split) value += factors[split] * partial[int64_t{split} * size + 2 + i];
    mixed[i] = value;
  }
  __syncthreads();
  for (int i = warp; i < a.low; i += kWarps) {
    float dot = 0;
    for (int k = lane; k < a.rank; k += 32) dot += mixed[k] * widen(a.a[int64_t{i} * a.rank + k]);
    dot = warp_sum(dot);
    if (lane == 0) low[i] = a.update_scale * dot;
  }
  __syncthreads();
  const int begin = blockIdx.x * kRows, end = min(begin + kRows, a.value);
  for (int i = begin + warp; i < end; i += kWarps) {
    const int64_t row = a.row(head) + a.nope + i;
    float dot = 0;
#pragma unroll 8
    for (int k = lane; k < a.rank; k += 32) dot += mixed[k] * widen(a.weight[row * a.rank + k]);
    for (int k = lane; k < a.low; k += 32) dot += low[k] * widen(a.b[row * a.low + k]);
    dot = warp_sum(dot);
    if (lane == 0) a.y[(int64_t{sequence} * a.heads + head) * a.value + i] = narrow<T>(dot);
  }
}

// Calls f.template operator()<N, P>(): lanes that hold a row, in pairs where it is whole pairs.
template <class F>
void visit_row(int width, F&& f) {
  if (width % 2 != 0) return f.template operator()<1, 2 * kMostPacks>();
  if (width <= 64) return f.template operator()<2, 1>();
  f.template operator()<2, kMostPacks>();
}

// Of a sequence.
int64_t capacity_of(const LatentDecode& op) { return op.sequences.pages.dim(1) * op.cache.dim(1); }

// The workspace of a step.
struct Scratch {
  explicit Scratch(const LatentDecode& op)
      : latent(aligned(op.latent)),
        weight(op.weight.contiguous()),
        absorbed(empty(op, {op.q.dim(0), op.q.dim(1), op.cache.dim(2)})),
        partial(empty(op, {op.q.dim(0), op.q.dim(1), splits_of(op), op.rank() + 2})),
        pages(from_host(op.sequences.pages, op.q.device())) {}
  // As many as the longest sequence that the cache can hold needs.
  static int64_t splits_of(const LatentDecode& op) {
    return std::min<int64_t>(kLatentSplits, (capacity_of(op) + kLatentMinSplit - 1) / kLatentMinSplit);
  }
  static Tensor empty(const LatentDecode& op, const Shape& shape) {
    return Tensor::empty(shape, DType::kF32, MemoryTag::kWorkspace, op.q.device());
  }
  Tensor latent, weight, absorbed, partial, pages;
};

template <class T>
LatentArguments<T> arguments_of(const LatentDecode& op, const Scratch& scratch, const Tensor& y) {
  const auto at = [](const Tensor& tensor) { return tensor.defined() ? static_cast<T*>(tensor.raw()) : nullptr; };
  const auto number = [](int64_t size) { return static_cast<int>(size); };
  return {at(op.q),
          at(scratch.latent),
          at(scratch.weight),
          at(op.a),
          at(op.b),
          at(op.cache),
          at(y),
          op.lengths.data<int32_t>(),
          scratch.pages.data<int32_t>(),
          scratch.absorbed.data<float>(),
          scratch.partial.data<float>(),
          number(op.q.dim(1)),
          number(op.nope_dim()),
          number(op.cache.dim(2) - op.rank()),
          number(op.value_dim()),
          number(op.rank()),
          number(op.a.defined() ? op.a.dim(0) : 0),
          number(capacity_of(op)),
          number(scratch.pages.dim(1)),
          number(op.cache.dim(1)),
          page_shift_of(op.cache.dim(1)),
          number(scratch.partial.dim(2)),
          op.scale * kLog2E,
          op.update_scale};
}

size_t floats(int64_t count) { return static_cast<size_t>(count) * sizeof(float); }

template <class T>
void attend_to_cache(const LatentArguments<T>& arguments, const LatentDecode& op) {
  const Device device = op.q.device();
  const int64_t sequences = op.q.dim(0), heads = op.q.dim(1), rank = op.rank(), width = op.cache.dim(2);
  if constexpr (std::is_same_v<T, __nv_bfloat16>)
    if (fits_latent_tiles(rank, width, device) && is_aligned(op.cache))
      return attend_in_tiles(arguments, sequences, device);
  visit_row(static_cast<int>(width), [&]<int N, int P>() {
    const size_t shared = floats(kWarps * kHeads * (rank + 2));
    allow_scratch(attend<T, N, P>, shared);
    const dim3 grid(static_cast<unsigned>(arguments.splits), static_cast<unsigned>((heads + kHeads - 1) / kHeads),
                    static_cast<unsigned>(sequences));
    attend<T, N, P><<<grid, kWarps * 32, shared, device::stream(device)>>>(arguments);
  });
}

Tensor forward(const LatentDecode& op) {
  const Device device = op.q.device();
  const int64_t sequences = op.q.dim(0), heads = op.q.dim(1), rank = op.rank(), value = op.value_dim();
  const int64_t low = op.a.defined() ? op.a.dim(0) : 0;
  const Tensor y = Tensor::empty({sequences, heads, value}, op.q.dtype(), MemoryTag::kActivations, device);
  if (y.numel() == 0) return y;
  const Scratch scratch(op);
  const cudaStream_t stream = device::stream(device);
  const auto grid = [&](int64_t size, int64_t of_block) {
    return dim3(static_cast<unsigned>((size + of_block - 1) / of_block), static_cast<unsigned>(heads),
                static_cast<unsigned>(sequences));
  };
  visit_wide_or_brain(op.q.dtype(), [&]<class T>() {
    const auto arguments = arguments_of<T>(op, scratch, y);
    absorb<T><<<grid(op.cache.dim(2), kColumns), kWarps * 32, floats(op.nope_dim() + low + kWarps * kColumns),
                stream>>>(arguments);
    attend_to_cache<T>(arguments, op);
    expand<T><<<grid(value, kRows), kWarps * 32, floats(rank + low), stream>>>(arguments);
  });
  device::check_launch("latent_decode");
  return y;
}

ops::Refusal accepts(const LatentDecode::Signature& s, const HardwareFacts&) {
  if (s.dtype == DType::kF16) return "dtype must be float32 or bfloat16";
  constexpr int64_t kMost = int64_t{kMostPacks} * 64;
  if (s.rank + s.rope_dim > kMost)
    return fmt::format("the cache's rows must have at most {} entries, have {}", kMost, s.rank + s.rope_dim);
  return std::nullopt;
}

}  // namespace

void register_cuda_latent_decode() {
  ops::kernels<LatentDecode>().add("cuda", {.hardware = hardware::kGpu,
                                            .accepts = accepts,
                                            .forward = forward,
                                            .batch_invariant = true,
                                            .repeats = true});
}

}  // namespace temper::backends
