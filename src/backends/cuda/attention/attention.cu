// Attention where no library's kernel serves: float32, other heads, GPUs before compute capability 9.0. All
// sums are float32 and have one order. A block has a tile of queries and meets tiles of keys (y and dq), or
// has keys and meets queries of all heads that share them (dk and dv).
#include <cstring>

#include "backends/cuda/attention/attention_tiles.h"
#include "backends/gpu/attention_shapes.h"
#include "ops/attention/attention.h"
#include "tensor/host_inputs.h"

namespace temper::backends {
namespace {

using ops::Attention;

constexpr int kLargestHead = 256;
constexpr int64_t kScratch =
    4 * TileSizes<64>::floats(4);   // bytes of shared memory: the most that a kernel takes
constexpr float kNothing = -1e30f;  // below every score, and finite

// Rows of one document: queries and keys begin at these tokens. Query i sees keys up to i + shift.
struct Document {
  int query, queries, key, keys, shift;
};
// A tile of a document's queries, or of its keys: rows from `first` on; none in the list's padding.
struct Tile {
  Document document;
  int first, rows;
};

template <class T>
struct Arguments {
  const T *q, *k, *v, *y, *dy;
  T *out, *dk, *dv;      // y or dq; all compact
  float *logs, *deltas;  // [heads, tokens]: of the softmax's denominators to base 2, or null; Σ y dy
  const Tile* tiles;
  int64_t q_stride, k_stride, v_stride, tokens;
  int heads, kv_heads, dim, window;
  float scale;

  __device__ float power_scale() const { return scale * kLog2E; }
  __device__ bool sees(int distance) const { return distance >= 0 && (window == 0 || distance < window); }
};

// The keys that some query of a tile sees, by tiles: from the first that one does.
template <class T>
__device__ int first_key(const Arguments<T>& a, const Tile& tile, int step) {
  return a.window == 0 ? 0 : max(0, tile.first + tile.document.shift - a.window + 1) / step * step;
}
__device__ int end_of_keys(const Tile& tile) {
  return min(tile.document.keys, tile.first + tile.rows + tile.document.shift);
}

// Keys and values of one head from a token on.
template <int kDim, class T>
__device__ void load_keys(float* k, float* v, const Arguments<T>& a, int64_t token, int head, int rows) {
  load_tile<kDim>(k, a.k + token * a.k_stride + head * a.dim, a.k_stride, rows, a.dim);
  load_tile<kDim>(v, a.v + token * a.v_stride + head * a.dim, a.v_stride, rows, a.dim);
}

template <class T, int kDim>
__global__ void __launch_bounds__(kThreads) attend(const __grid_constant__ Arguments<T> a) {
  using S = TileSizes<kDim>;
  extern __shared__ float4 memory[];
  float* const q = reinterpret_cast<float*>(memory);
  float *const k = q + S::kTile * S::kPitch, *const v = k + S::kTile * S::kPitch,
               *const pairs = v + S::kTile * S::kPitch;
  const Tile tile = a.tiles[blockIdx.x];
  if (tile.rows == 0) return;
  const Document& d = tile.document;
  const int head = blockIdx.y, kv_head = head / (a.heads / a.kv_heads);
  const int64_t token = d.query + tile.first;
  load_tile<kDim>(q, a.q + token * a.q_stride + head * a.dim, a.q_stride, tile.rows, a.dim);
  float largest[S::kEach], sums[S::kEach] = {}, scores[S::kEach][S::kEach];
  for (float& value : largest) value = kNothing;
  TileSums<kDim> y;
  for (int key = first_key(a, tile, S::kTile); key < end_of_keys(tile); key += S::kTile) {
    __syncthreads();
    load_keys<kDim>(k, v, a, d.key + key, kv_head, d.keys - key);
    __syncthreads();
    multiply_tiles<kDim>(q, k, scores);
    for (int i = 0; i < S::kEach; ++i) {
      const int ahead = tile.first + thread_row() + kSide * i + d.shift - key - thread_column();
      float most = largest[i];
      for (int j = 0; j < S::kEach; ++j) {
        float& score = scores[i][j];
        score = a.sees(ahead - kSide * j) ? score * a.power_scale() : kNothing;
        most = fmaxf(most, score);
      }
      most = row_max(most);
      const float ratio = exp2f(largest[i] - most);
      largest[i] = most;
      float sum = 0;
      for (float& score : scores[i]) {
        score = score == kNothing ? 0.f : exp2f(score - most);
        sum += score;
      }
      sums[i] = sums[i] * ratio + row_sum(sum);
      y.scale(i, ratio);
    }
    share_pairs<kDim>(pairs, scores);
    __syncthreads();
    y.add(pairs, v);
  }
  for (int i = 0; i < S::kEach; ++i) {
    const int row = thread_row() + kSide * i;
    if (row >= tile.rows) continue;
    y.scale(i, 1 / sums[i]);
    if (a.logs != nullptr && thread_column() == 0)
      a.logs[head * a.tokens + token + row] = largest[i] + log2f(sums[i]);
  }
  const int64_t width = int64_t{a.heads} * a.dim;
  y.store(a.out + token * width + head * a.dim, width, tile.rows, a.dim);
}

// dq, and the deltas that dk and dv need, too.
template <class T, int kDim>
__global__ void __launch_bounds__(kThreads) differentiate_queries(const __grid_constant__ Arguments<T> a) {
  using S = TileSizes<kDim>;
  extern __shared__ float4 memory[];
  float* const q = reinterpret_cast<float*>(memory);
  float *const dy = q + S::kTile * S::kPitch, *const k = dy + S::kTile * S::kPitch,
               *const v = k + S::kTile * S::kPitch, *const pairs = v + S::kTile * S::kPitch;
  const Tile tile = a.tiles[blockIdx.x];
  if (tile.rows == 0) return;
  const Document& d = tile.document;
  const int head = blockIdx.y, kv_head = head / (a.heads / a.kv_heads);
  const int64_t token = d.query + tile.first, width = int64_t{a.heads} * a.dim;
  const int64_t at = token * width + head * a.dim;
  load_tile<kDim>(q, a.q + token * a.q_stride + head * a.dim, a.q_stride, tile.rows, a.dim);
  load_tile<kDim>(dy, a.dy + at, width, tile.rows, a.dim);
  __syncthreads();
  float logs[S::kEach], deltas[S::kEach];
  for (int i = 0; i < S::kEach; ++i) {
    const int row = thread_row() + kSide * i;
    const bool there = row < tile.rows;
    float sum = 0;
    for (int column = thread_column(); there && column < a.dim; column += kSide)
      sum += dy[row * S::kPitch + column] * widen(a.y[at + row * width + column]);
    deltas[i] = row_sum(sum);
    const int64_t place = head * a.tokens + token + row;
    logs[i] = there ? a.logs[place] : 0.f;
    if (there && thread_column() == 0) a.deltas[place] = deltas[i];
  }
  TileSums<kDim> dq;
  float scores[S::kEach][S::kEach], dp[S::kEach][S::kEach];
  for (int key = first_key(a, tile, S::kTile); key < end_of_keys(tile); key += S::kTile) {
    __syncthreads();
    load_keys<kDim>(k, v, a, d.key + key, kv_head, d.keys - key);
    __syncthreads();
    multiply_tiles<kDim>(q, k, scores);
    multiply_tiles<kDim>(dy, v, dp);
    for (int i = 0; i < S::kEach; ++i) {
      const int ahead = tile.first + thread_row() + kSide * i + d.shift - key - thread_column();
      for (int j = 0; j < S::kEach; ++j)
        scores[i][j] = a.sees(ahead - kSide * j)
                           ? exp2f(scores[i][j] * a.power_scale() - logs[i]) * (dp[i][j] - deltas[i])
                           : 0.f;
    }
    share_pairs<kDim>(pairs, scores);
    __syncthreads();
    dq.add(pairs, k);
  }
  for (int i = 0; i < S::kEach; ++i) dq.scale(i, a.scale);
  dq.store(a.out + at, width, tile.rows, a.dim);
}

template <class T, int kDim>
__global__ void __launch_bounds__(kThreads) differentiate_keys(const __grid_constant__ Arguments<T> a) {
  using S = TileSizes<kDim>;
  extern __shared__ float4 memory[];
  float* const k = reinterpret_cast<float*>(memory);
  float *const v = k + S::kTile * S::kPitch, *const q = v + S::kTile * S::kPitch,
               *const dy = q + S::kTile * S::kPitch, *const pairs = dy + S::kTile * S::kPitch;
  const Tile tile = a.tiles[blockIdx.x];
  if (tile.rows == 0) return;
  const Document& d = tile.document;
  const int kv_head = blockIdx.y, group = a.heads / a.kv_heads;
  const int64_t token = d.key + tile.first, width = int64_t{a.heads} * a.dim,
                kv_width = int64_t{a.kv_heads} * a.dim;
  load_keys<kDim>(k, v, a, token, kv_head, tile.rows);
  const int begin = max(0, tile.first - d.shift) / S::kTile * S::kTile;
  const int end = a.window == 0 ? d.queries : min(d.queries, tile.first + tile.rows - 1 + a.window - d.shift);
  TileSums<kDim> dk, dv;
  float p[S::kEach][S::kEach], ds[S::kEach][S::kEach];
  for (int head = kv_head * group; head < (kv_head + 1) * group; ++head)
    for (int query = begin; query < end; query += S::kTile) {
      const int64_t from = d.query + query;
      __syncthreads();
      load_tile<kDim>(q, a.q + from * a.q_stride + head * a.dim, a.q_stride, d.queries - query, a.dim);
      load_tile<kDim>(dy, a.dy + from * width + head * a.dim, width, d.queries - query, a.dim);
      __syncthreads();
      multiply_tiles<kDim>(k, q, p);
      multiply_tiles<kDim>(v, dy, ds);
      for (int j = 0; j < S::kEach; ++j) {
        const int column = thread_column() + kSide * j;
        const bool there = query + column < d.queries;
        const int64_t place = head * a.tokens + from + column;
        const float log = there ? a.logs[place] : 0.f, delta = there ? a.deltas[place] : 0.f;
        for (int i = 0; i < S::kEach; ++i) {
          const int distance = query + column + d.shift - tile.first - thread_row() - kSide * i;
          p[i][j] = there && a.sees(distance) ? exp2f(p[i][j] * a.power_scale() - log) : 0.f;
          ds[i][j] = p[i][j] * (ds[i][j] - delta);
        }
      }
      share_pairs<kDim>(pairs, p);
      __syncthreads();
      dv.add(pairs, dy);
      __syncthreads();
      share_pairs<kDim>(pairs, ds);
      __syncthreads();
      dk.add(pairs, q);
    }
  for (int i = 0; i < S::kEach; ++i) dk.scale(i, a.scale);
  dk.store(a.dk + token * kv_width + kv_head * a.dim, kv_width, tile.rows, a.dim);
  dv.store(a.dv + token * kv_width + kv_head * a.dim, kv_width, tile.rows, a.dim);
}

// Calls f.template operator()<T, dim>() with the narrowest rows that hold a head.
template <class F>
void visit_tiles(const Attention& op, F&& f) {
  visit_wide_or_brain(op.q.dtype(), [&]<class T>() {
    const int64_t dim = op.q.dim(2);
    if (dim <= 64) return f.template operator()<T, 64>();
    if (dim <= 128) return f.template operator()<T, 128>();
    f.template operator()<T, kLargestHead>();
  });
}

// Queries or keys of all documents, cut into tiles. A captured graph is replayed with other documents. Therefore
// there are as many tiles as this number of documents and tokens can need at most.
struct Tiles {
  Tensor list;
  unsigned count;

  Tiles(const Attention& op, bool of_keys, int size) {
    const Tensor &starts_q = op.cu_seqlens_q, &starts_k = op.cu_seqlens_k;
    const int64_t documents = starts_q.dim(0) - 1, tokens = of_keys ? op.k.dim(0) : op.q.dim(0);
    count = static_cast<unsigned>(tokens / size + documents);
    const auto write = [=, most = count](std::byte* to) {
      const auto q = starts_q.values<int32_t>(), k = starts_k.values<int32_t>();
      std::vector<Tile> tiles;
      for (size_t i = 0; i + 1 < q.size(); ++i) {
        const int queries = q[i + 1] - q[i], keys = k[i + 1] - k[i], rows = of_keys ? keys : queries;
        for (int first = 0; first < rows; first += size)
          tiles.push_back({{q[i], queries, k[i], keys, keys - queries}, first, std::min(size, rows - first)});
      }
      tiles.resize(most);
      std::memcpy(to, tiles.data(), tiles.size() * sizeof(Tile));
    };
    list =
        from_host(fmt::format("attention {} {} {} {}", name_of(starts_q), name_of(starts_k), of_keys, size),
                  {int64_t{count} * static_cast<int64_t>(sizeof(Tile))}, DType::kU8, op.q.device(), write);
  }
  const Tile* data() const { return static_cast<const Tile*>(list.raw()); }
};

template <class T>
Arguments<T> arguments_of(const Attention& op, const Tensor& logs) {
  const auto start = [](const Tensor& tensor) { return static_cast<const T*>(tensor.raw()); };
  return {.q = start(op.q),
          .k = start(op.k),
          .v = start(op.v),
          .logs = logs.defined() ? logs.data<float>() : nullptr,
          .q_stride = op.q.stride(0),
          .k_stride = op.k.stride(0),
          .v_stride = op.v.stride(0),
          .tokens = op.q.dim(0),
          .heads = static_cast<int>(op.q.dim(1)),
          .kv_heads = static_cast<int>(op.k.dim(1)),
          .dim = static_cast<int>(op.q.dim(2)),
          .window = static_cast<int>(op.window),
          .scale = op.scale};
}

// One block for each tile and head.
template <class T>
void launch(void (*kernel)(Arguments<T>), Arguments<T> arguments, const Tiles& tiles, int64_t heads,
            int floats, Device device) {
  const size_t bytes = static_cast<size_t>(floats) * sizeof(float);
  allow_scratch(kernel, bytes);
  arguments.tiles = tiles.data();
  kernel<<<dim3(tiles.count, static_cast<unsigned>(heads)), kThreads, bytes, device::stream(device)>>>(
      arguments);
  device::check_launch("attention");
}

Tensor compact_rows(const Tensor& like) {
  return Tensor::empty(like.shape(), like.dtype(), MemoryTag::kActivations, like.device());
}

Attention::Output forward(const Attention& op, bool want_lse) {
  const int64_t tokens = op.q.dim(0), heads = op.q.dim(1);
  const Device device = op.q.device();
  Attention::Output out{compact_rows(op.q), {}};
  if (want_lse) out.lse = Tensor::empty({heads, tokens}, DType::kF32, MemoryTag::kActivations, device);
  if (tokens == 0) return out;
  visit_tiles(op, [&]<class T, int kDim>() {
    using S = TileSizes<kDim>;
    Arguments<T> arguments = arguments_of<T>(op, out.lse);
    arguments.out = static_cast<T*>(out.y.raw());
    launch<T>(attend<T, kDim>, arguments, Tiles(op, false, S::kTile), heads, S::floats(3), device);
  });
  return out;
}

// Of each query the sum of its gradient's products with its result.
Tensor empty_deltas(const Attention::Output& out) {
  return Tensor::empty(out.lse.shape(), DType::kF32, MemoryTag::kWorkspace, out.lse.device());
}

Attention::Grads backward(const Attention& op, const Attention::Output& out, const Tensor& dy) {
  const Device device = op.q.device();
  const Attention::Grads grads{compact_rows(op.q), compact_rows(op.k), compact_rows(op.v)};
  if (op.k.dim(0) == 0) return grads;
  const Tensor deltas = empty_deltas(out);
  visit_tiles(op, [&]<class T, int kDim>() {
    using S = TileSizes<kDim>;
    Arguments<T> arguments = arguments_of<T>(op, out.lse);
    arguments.y = static_cast<const T*>(out.y.raw());
    arguments.dy = static_cast<const T*>(dy.raw());
    arguments.deltas = deltas.data<float>();
    arguments.out = static_cast<T*>(grads.q.raw());
    arguments.dk = static_cast<T*>(grads.k.raw());
    arguments.dv = static_cast<T*>(grads.v.raw());
    const int floats = S::floats(4);
    launch<T>(differentiate_queries<T, kDim>, arguments, Tiles(op, false, S::kTile), op.q.dim(1), floats,
              device);
    launch<T>(differentiate_keys<T, kDim>, arguments, Tiles(op, true, S::kTile), op.k.dim(1), floats, device);
  });
  return grads;
}

Attention::Grads outline_backward(const Attention& op, const Attention::Output& out, const Tensor& dy) {
  const Tensor deltas = empty_deltas(out);
  return ops::outline<Attention>().backward(op, out, dy);
}

ops::Refusal accepts(const Attention::Signature& s, const HardwareFacts& facts) {
  if (s.dtype == DType::kF16) return "dtype must be float32 or bfloat16";
  if (s.sinks) return ops::refuse_sinks(s.sinks);
  if (!s.causal) return ops::refuse_all_keys(s.causal);
  if (facts.scratch_bytes > 0 && facts.scratch_bytes < kScratch)
    return fmt::format("needs {} KiB of {}, there are {}", kScratch >> 10, facts.scratch_name,
                       facts.scratch_bytes >> 10);
  if (s.narrow_or_wide_values())
    return fmt::format("values must be as wide as keys, are {} and {}", s.value_dim, s.head_dim);
  if (s.head_dim > kLargestHead)
    return fmt::format("head_dim must be at most {}, is {}", kLargestHead, s.head_dim);
  return std::nullopt;
}

// It multiplies in float32: what tensor cores take is better off there.
std::optional<ops::Better> better(const Attention::Signature& s, const HardwareFacts& facts) {
  if (refuse_packed_attention(s, facts)) return std::nullopt;
  return ops::Better{"cudnn", "training was measured 4 to 12 times slower (Qwen3-8B and 0.6B on an H200)"};
}

}  // namespace

void register_cuda_attention() {
  ops::kernels<Attention>().add("cuda", {.hardware = hardware::kGpu,
                                         .accepts = accepts,
                                         .forward = forward,
                                         .backward = backward,
                                         .better = better,
                                         .repeats = true,
                                         .outline = {.backward = outline_backward}});
}

}  // namespace temper::backends
