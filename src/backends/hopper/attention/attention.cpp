// Attention for compute capability 9.0: the kernel's arguments, made from the documents of a call.
#include <algorithm>
#include <cstring>
#include <tuple>

#include "backends/gpu/attention_operands.h"
#include "backends/gpu/attention_shapes.h"
#include "backends/hopper/attention/attention_backward_kernel.h"
#include "backends/hopper/attention/attention_backward_rows.h"
#include "backends/hopper/attention/attention_items.h"
#include "backends/hopper/tensor_maps.h"
#include "base/parts/rooms.h"
#include "device/cuda/alone.h"
#include "device/cuda/stream.h"
#include "ops/attention/attention.h"
#include "tensor/host_inputs.h"

namespace temper::backends::hopper {
namespace {

using ops::Attention;

// What the kernel is written for; it writes no scores.
bool is_for_hopper(int compute_capability, int64_t head_dim) {
  return compute_capability == 90 && (head_dim == 64 || head_dim == 128);
}

ops::Refusal accepts_hopper(const Attention::Signature& s, const HardwareFacts& facts) {
  if (!is_for_hopper(facts.compute_capability, s.head_dim))
    return fmt::format("is for head_dim 64 or 128 at compute capability 9.0, this is {} at {}.{}", s.head_dim,
                       facts.compute_capability / 10, facts.compute_capability % 10);
  if (s.narrow_or_wide_values())
    return fmt::format("values must be as wide as keys, are {} and {}", s.value_dim, s.head_dim);
  return refuse_packed_attention(s, facts);
}

// What a schedule depends on, without tensors of the device.
struct Call {
  Packing packing;
  bool window;
  Device device;

  std::string name() const { return fmt::format("hopper {} {}", name_of(packing), window); }
  Schedule schedule() const { return schedule_of(packing, window, device::multiprocessors(device)); }
};

// What its launches depend on.
auto sizes(const Schedule& schedule) {
  return std::tuple(schedule.items.size(), schedule.rows.size(), schedule.whole);
}

template <class T>
int64_t bytes(const std::vector<T>& list) {
  return static_cast<int64_t>(list.size() * sizeof(T));
}

template <class T>
std::byte* put(const std::vector<T>& list, std::byte* to) {
  std::memcpy(to, list.data(), static_cast<size_t>(bytes(list)));
  return to + bytes(list);
}

// A schedule's lists on the device, one behind the other. Documents come last, with room for as many as there
// can be when work is repeated.
class Lists {
 public:
  Lists(const Call& call, const Schedule& schedule)
      : items_(bytes(schedule.rows)), documents_(items_ + bytes(schedule.items)) {
    const auto most = call.packing.cu_seqlens_q.dim(0) * static_cast<int64_t>(sizeof(hopper::Document));
    all_ = from_host(call.name(), {documents_ + most}, DType::kU8, call.device, [call](std::byte* to) {
      const Schedule now = call.schedule();
      put(now.documents, put(now.items, put(now.rows, to)));
    });
  }
  const hopper::TileRows* rows() const { return at<hopper::TileRows>(0); }
  const hopper::Item* items() const { return at<hopper::Item>(items_); }
  const hopper::Document* documents() const { return at<hopper::Document>(documents_); }

 private:
  template <class T>
  const T* at(int64_t offset) const {
    return reinterpret_cast<const T*>(static_cast<const std::byte*>(all_.raw()) + offset);
  }

  int64_t items_, documents_;  // where they begin
  Tensor all_;
};

// How copies find boxes of [rows, 64] in [tokens, heads, head_dim].
CUtensorMap boxes_of(const Tensor& tensor, int rows) {
  const auto size = [&](int axis) { return static_cast<cuuint64_t>(tensor.dim(axis)); };
  const cuuint64_t width = size_of(tensor.dtype());
  const cuuint64_t sizes[] = {size(2), size(1), size(0)};
  const cuuint64_t strides[] = {size(2) * width, static_cast<cuuint64_t>(tensor.stride(0)) * width};  // bytes
  const cuuint32_t box[] = {64, 1, static_cast<cuuint32_t>(rows)};
  return tensor_map<3>(tensor, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, sizes, strides, box,
                       CU_TENSOR_MAP_SWIZZLE_128B);
}

// And `count` values at a time.
CUtensorMap values_of(const Tensor& tensor, int count) {
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(tensor.numel())};
  const cuuint64_t no_strides[] = {0};
  const cuuint32_t box[] = {static_cast<cuuint32_t>(count)};
  return tensor_map<1>(tensor, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, sizes, no_strides, box,
                       CU_TENSOR_MAP_SWIZZLE_NONE);
}

__nv_bfloat16* elements(const Tensor& tensor) { return static_cast<__nv_bfloat16*>(tensor.raw()); }

void launch(const Attention& op, const Attention::Output& out, const Tensor& dy, const Call& call,
            const Schedule& schedule, const Attention::Grads& grads) {
  const Tensor q = readable(op.q, false), k = readable(op.k, false), v = readable(op.v, false);
  const Lists lists(call, schedule);
  const int64_t heads = call.packing.heads, dim = call.packing.head_dim,
                tiles = static_cast<int64_t>(schedule.rows.size());
  const auto head_dim = static_cast<int>(dim);
  const int tile = hopper::tile_of(head_dim);
  const auto scratch = [&](Shape shape, DType dtype) {
    return Tensor::empty(shape, dtype, MemoryTag::kWorkspace, call.device);
  };
  const Tensor logs = scratch({heads, tiles * tile}, DType::kF32),
               deltas = scratch(logs.shape(), DType::kF32),
               sums = scratch({heads, tiles * tile, dim}, DType::kF32),
               turns = scratch({1 + heads * tiles}, DType::kI32);  // the first: the ticket
  if (only_counts(call.device)) return;
  const cudaStream_t stream = device::stream(call.device);
  turns.fill_zero();

  const hopper::RowArguments rows{head_dim, static_cast<int>(heads), static_cast<int>(tiles), lists.rows()};
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
  arguments.logs = values_of(logs, tile);
  arguments.deltas = values_of(deltas, tile);
  arguments.documents = lists.documents();
  arguments.items = lists.items();
  arguments.dq = sums.data<float>();
  arguments.ticket = turns.data<int32_t>();
  arguments.turns = arguments.ticket + 1;
  arguments.dk = elements(grads.k);
  arguments.dv = elements(grads.v);
  arguments.dk_stride = grads.k.stride(0);
  arguments.dv_stride = grads.v.stride(0);
  arguments.tiles = static_cast<int>(tiles);
  arguments.heads_per_key = static_cast<int>(heads / call.packing.kv_heads);
  arguments.window = static_cast<int>(op.window);
  arguments.scale = op.scale;
  {
    const device::AloneScope alone(call.device);
    hopper::launch_backward(head_dim, arguments, static_cast<int>(schedule.items.size()), stream);
    device::check_launch("attention_backward");
  }

  hopper::finish_rows(rows, sums.data<float>(), op.scale, elements(grads.q), grads.q.stride(0), stream);
  device::check_launch("attention_backward_rows");
}

Attention::Grads backward_hopper(const Attention& op, const Attention::Output& out, const Tensor& dy) {
  const Call call{packing_of(op, false), op.window > 0, op.q.device()};
  const Schedule schedule = call.schedule();
  take_for_granted(call.name(), [call, found = sizes(schedule)] { return sizes(call.schedule()) == found; });
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

// Forward by the registered kernel `cudnn`, backward by a kernel of our own, which gives the same bits every
// time and is faster than cuDNN's. In front of the kernels of libraries, to which it leaves what it is not
// for.
void register_hopper_attention() {
  ops::kernels<Attention>().add_before(is_built("backends", "cudnn") ? "cudnn" : "cuda", "hopper",
                                       {.hardware = hardware::kGpu,
                                        .accepts = accepts_hopper,
                                        .backward = backward_hopper,
                                        .needs = {.forward = {"cudnn"}},
                                        .repeats = true,
                                        .outline = {.backward = backward_hopper}});
}

}  // namespace temper::backends::hopper
