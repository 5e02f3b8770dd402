// Attention for compute capability 9.0: what the kernel in hopper/ is told, from the documents of a call.
#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <tuple>

#include "backends/cudnn/cudnn.h"
#include "backends/cudnn/documents.h"
#include "backends/cudnn/hopper/backward_kernel.h"
#include "backends/cudnn/hopper/backward_rows.h"
#include "backends/cudnn/operands.h"
#include "backends/gpu_limits.h"
#include "device/cuda/stream.h"
#include "tensor/host_inputs.h"

namespace temper::backends::cudnn {
namespace {

using ops::Attention;

ops::Refusal accepts_hopper(const Attention::Signature& s, const HardwareFacts& facts) {
  if (!is_for_hopper(facts.compute_capability, s.head_dim))
    return fmt::format("is for head_dim 64 or 128 at compute capability 9.0, this is {} at {}.{}", s.head_dim,
                       facts.compute_capability / 10, facts.compute_capability % 10);
  return attention_kernel().accepts(s, facts);
}

// A call's documents, cut into what blocks of threads do. The numbers of items and tiles are rounded up, so
// that work that is repeated may have other documents: items and tiles beyond are empty.
struct Schedule {
  std::vector<hopper::Document> documents;
  std::vector<hopper::Item> items;
  std::vector<hopper::TileRows> rows;
  bool whole = true;  // every key belongs to a document with queries
};

int multiprocessors(Device device) {
  int count = 0;
  device::check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device.index),
                "cudaDeviceGetAttribute");
  return count;
}

void add_items(Schedule& schedule, int document, int kv_heads) {
  const hopper::Document& d = schedule.documents[static_cast<size_t>(document)];
  const int blocks = (d.keys + hopper::kBlock - 1) / hopper::kBlock;
  for (int head = 0; head < kv_heads; ++head) {
    if (d.paired != 0)
      for (int i = 0; i < (blocks + 1) / 2; ++i)
        schedule.items.push_back({document, head, i, blocks - 1 - i > i ? blocks - 1 - i : -1});
    else
      for (int block = blocks - 1; block >= 0; --block) schedule.items.push_back({document, head, block, -1});
  }
}

// To an eighth of the power of two below.
template <class T>
void fill_up(std::vector<T>& list, const T& with) {
  const size_t step = std::max<size_t>(std::bit_floor(list.size()) / 8, 1);
  list.resize((list.size() + step - 1) / step * step, with);
}

// What a schedule depends on, without tensors of the device.
struct Call {
  Tensor cu_seqlens_q, cu_seqlens_k;
  int heads, kv_heads, head_dim;
  bool window;
  Device device;

  std::string name() const {
    return fmt::format("hopper {} {} {} {} {} {}", name_of(cu_seqlens_q), name_of(cu_seqlens_k), heads,
                       kv_heads, head_dim, window);
  }
};

Schedule schedule_of(const Call& call) {
  const int tile = hopper::tile_of(call.head_dim), at_once = multiprocessors(call.device);
  Attention op;
  op.cu_seqlens_q = call.cu_seqlens_q;
  op.cu_seqlens_k = call.cu_seqlens_k;
  const std::vector<Document> documents = documents_of(op);
  const bool plain = common_length(documents, op) > 0;
  Schedule schedule;
  int64_t seen = 0;
  for (const Document& d : documents) {
    const auto query = static_cast<int>(d.query), queries = static_cast<int>(d.queries),
               keys = static_cast<int>(d.keys);
    const bool paired =
        keys == queries && !call.window && (keys + 2 * hopper::kBlock - 1) / (2 * hopper::kBlock) <= at_once;
    const auto first_tile = static_cast<int>(schedule.rows.size());
    schedule.documents.push_back({query, queries, static_cast<int>(d.key), keys, first_tile, paired});
    for (int first = 0; first < queries; first += tile) {
      // Logs of a plain batch are [documents, heads, length], of ragged documents [tokens, heads].
      const int log = plain ? query * call.heads + first : (query + first) * call.heads;
      schedule.rows.push_back({query + first, std::min(tile, queries - first), log});
    }
    seen += d.keys;
  }
  schedule.whole = seen == op.starts_k().back();
  // The longest first, so that the last to finish are short.
  std::vector<int> order(documents.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return documents[static_cast<size_t>(a)].keys > documents[static_cast<size_t>(b)].keys;
  });
  for (const int document : order) add_items(schedule, document, call.kv_heads);
  if (schedule.items.empty()) return schedule;
  fill_up(schedule.items, {-1, 0, 0, -1});
  fill_up(schedule.rows, {0, 0, 0});
  return schedule;
}

// What its launches depend on.
auto sizes(const Schedule& schedule) {
  return std::tuple(schedule.items.size(), schedule.rows.size(), schedule.whole);
}

template <class T>
Tensor list(const Call& call, const char* name, size_t size, std::vector<T> Schedule::*member) {
  const auto bytes = static_cast<int64_t>(size * sizeof(T));
  return from_host(fmt::format("{} {}", call.name(), name), {bytes}, DType::kU8, call.device,
                   [call, member, bytes](std::byte* to) {
                     const std::vector<T> values = schedule_of(call).*member;
                     const size_t filled = values.size() * sizeof(T);
                     std::memcpy(to, values.data(), std::min(filled, static_cast<size_t>(bytes)));
                   });
}

// How copies find boxes of [rows, 64] in [tokens, heads, head_dim] (CUDA driver API, tensor maps).
CUtensorMap boxes_of(const Tensor& tensor, int rows) {
  const auto size = [&](int axis) { return static_cast<cuuint64_t>(tensor.dim(axis)); };
  const cuuint64_t width = size_of(tensor.dtype());
  const cuuint64_t sizes[] = {size(2), size(1), size(0)};
  const cuuint64_t strides[] = {size(2) * width, static_cast<cuuint64_t>(tensor.stride(0)) * width};  // bytes
  const cuuint32_t box[] = {64, 1, static_cast<cuuint32_t>(rows)}, steps[] = {1, 1, 1};
  CUtensorMap map;
  device::check(device::driver().tensor_map_encode_tiled(
                    &map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, tensor.raw(), sizes, strides, box, steps,
                    CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                    CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
                "cuTensorMapEncodeTiled");
  return map;
}

__nv_bfloat16* elements(const Tensor& tensor) { return static_cast<__nv_bfloat16*>(tensor.raw()); }

template <class T>
const T* values(const Tensor& bytes) {
  return static_cast<const T*>(static_cast<const void*>(bytes.raw()));
}

void launch(const Attention& op, const Attention::Output& out, const Tensor& dy, const Call& call,
            const Schedule& schedule, const Attention::Grads& grads) {
  const Tensor q = readable(op.q, false), k = readable(op.k, false), v = readable(op.v, false);
  const Tensor documents =
                   list(call, "documents", static_cast<size_t>(op.cu_seqlens_q.dim(0)), &Schedule::documents),
               items = list(call, "items", schedule.items.size(), &Schedule::items),
               tile_rows = list(call, "tiles", schedule.rows.size(), &Schedule::rows);
  const cudaStream_t stream = device::stream(call.device);
  const int64_t heads = call.heads, dim = call.head_dim, tiles = static_cast<int64_t>(schedule.rows.size());
  const int tile = hopper::tile_of(call.head_dim);
  const auto scratch = [&](Shape shape, DType dtype) {
    return Tensor::empty(shape, dtype, MemoryTag::kWorkspace, call.device);
  };
  const Tensor logs = scratch({heads, tiles * tile}, DType::kF32),
               deltas = scratch(logs.shape(), DType::kF32),
               sums = scratch({heads, tiles * tile, dim}, DType::kF32),
               turns = scratch({1 + heads * tiles}, DType::kI32);  // the first: the ticket
  turns.fill_zero();

  const hopper::RowArguments rows{call.head_dim, call.heads, static_cast<int>(tiles),
                                  values<hopper::TileRows>(tile_rows)};
  const bool plain = out.lse.ndim() == 3;
  const hopper::ForwardLogs forward{out.lse.data<float>(), plain ? out.lse.dim(2) : 1, plain ? 1 : heads};
  hopper::prepare_rows(rows, forward, elements(out.y), elements(dy), logs.data<float>(), deltas.data<float>(),
                       stream);
  device::check_launch("attention_backward_rows");

  hopper::BackwardArguments arguments{};
  arguments.q = boxes_of(q, tile);
  arguments.k = boxes_of(k, hopper::kBlock);
  arguments.v = boxes_of(v, hopper::kBlock);
  arguments.dy = boxes_of(dy, tile);
  arguments.documents = values<hopper::Document>(documents);
  arguments.items = values<hopper::Item>(items);
  arguments.logs = logs.data<float>();
  arguments.deltas = deltas.data<float>();
  arguments.dq = sums.data<float>();
  arguments.ticket = turns.data<int32_t>();
  arguments.turns = arguments.ticket + 1;
  arguments.dk = elements(grads.k);
  arguments.dv = elements(grads.v);
  arguments.dk_stride = grads.k.stride(0);
  arguments.dv_stride = grads.v.stride(0);
  arguments.tiles = static_cast<int>(tiles);
  arguments.heads_per_key = call.heads / call.kv_heads;
  arguments.window = static_cast<int>(op.window);
  arguments.scale = op.scale;
  hopper::launch_backward(call.head_dim, arguments, static_cast<int>(schedule.items.size()), stream);
  device::check_launch("attention_backward");

  hopper::finish_rows(rows, sums.data<float>(), op.scale, elements(grads.q), grads.q.stride(0), stream);
  device::check_launch("attention_backward_rows");
}

Attention::Grads backward_hopper(const Attention& op, const Attention::Output& out, const Tensor& dy) {
  const auto size = [](int64_t value) { return static_cast<int>(value); };
  const Call call{op.cu_seqlens_q,   op.cu_seqlens_k, size(op.q.dim(1)), size(op.k.dim(1)),
                  size(op.q.dim(2)), op.window > 0,   op.q.device()};
  const Schedule schedule = schedule_of(call);
  take_for_granted(call.name(),
                   [call, found = sizes(schedule)] { return sizes(schedule_of(call)) == found; });
  // Of as many keys as queries every key has its query.
  const Attention::Grads grads = empty_gradients(op, op.q.dim(0) == op.k.dim(0));
  if (!schedule.whole) {
    grads.k.fill_zero();
    grads.v.fill_zero();
  }
  if (schedule.items.empty()) return grads;
  launch(op, {readable(out.y, true), out.lse}, readable(dy, true), call, schedule, grads);
  return grads;
}

}  // namespace

ops::Kernel<Attention> hopper_attention_kernel() {
  return {.hardware = hardware::kGpu,
          .accepts = accepts_hopper,
          .forward = forward,
          .backward = backward_hopper,
          .repeats = true};
}

}  // namespace temper::backends::cudnn
