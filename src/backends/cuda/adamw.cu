// One launch updates every parameter; each byte of weights, gradients and moments is read and written once.
#include <cmath>

#include "backends/cuda/cuda.h"
#include "backends/cuda/philox.h"
#include "backends/cuda/pieces.h"
#include "backends/gpu.h"

namespace temper::backends {
namespace {

using ops::AdamW;

struct Entry {
  void* value;
  float* master;  // or null
  const void* grad;
  void *exp_avg, *exp_avg_sq;
  int64_t elements, first_piece;
  uint32_t slot;
  float weight_decay;
};

struct Update {
  float lr, beta1, beta2, rest1, rest2, eps, inverse1, inverse2, max_grad_norm;  // inverse: of 1 - β^step
  const float* grad_norm;  // or null
  uint64_t seed, step;
};

// Eight elements at a time: they share the random words of one counter.
constexpr int kGroup = 8;
constexpr int kUpdateThreads = 128;
constexpr int kGroupBits = 38;  // as ops::rounding_bits

// A group as it lies in memory: widened when it is read, rounded when it is set.
template <class T>
struct Raw {
  Pack<T, kLanes<T>> packs[kGroup / kLanes<T>];
  __device__ float operator[](int i) const { return widen(packs[i / kLanes<T>].values[i % kLanes<T>]); }
  __device__ void set(int i, T value) { packs[i / kLanes<T>].values[i % kLanes<T>] = value; }
};

template <class T>
__device__ Raw<T> read(const T* from, int count) {
  Raw<T> raw{};
  if (count == kGroup && reinterpret_cast<uintptr_t>(from) % 16 == 0) {
    for (int p = 0; p < kGroup / kLanes<T>; ++p) raw.packs[p] = load_once<T, kLanes<T>>(from + p * kLanes<T>);
    return raw;
  }
  for (int i = 0; i < kGroup; ++i)
    if (i < count) raw.packs[i / kLanes<T>].values[i % kLanes<T>] = from[i];
  return raw;
}

template <class T>
__device__ T rounded(float value, uint32_t random) {
  if constexpr (std::is_same_v<T, float>) {
    return value;
  } else {
    const uint32_t bits = (__float_as_uint(value) + random) >> 16;
    // Infinity stays itself under the sum, NaN might not.
    return __ushort_as_bfloat16(static_cast<unsigned short>(value == value ? bits : 0x7FFF));
  }
}

// The half word of an element of a group.
__device__ uint32_t half_word(const uint4& words, int i) {
  const uint32_t word = i < 2 ? words.x : i < 4 ? words.y : i < 6 ? words.z : words.w;
  return word >> (i % 2 * 16) & 0xFFFF;
}

template <class T>
__device__ void write(T* to, const Raw<T>& raw, int count) {
  if (count == kGroup && reinterpret_cast<uintptr_t>(to) % 16 == 0) {
    for (int p = 0; p < kGroup / kLanes<T>; ++p) store_pack(to + p * kLanes<T>, raw.packs[p]);
    return;
  }
  for (int i = 0; i < kGroup; ++i)
    if (i < count) to[i] = raw.packs[i / kLanes<T>].values[i % kLanes<T>];
}

// Of a tensor that is kept as T; float32 is not rounded and needs none.
template <class T>
__device__ uint4 words_for(const Update& u, const Entry& entry, uint32_t tensor, int64_t group) {
  if constexpr (std::is_same_v<T, float>) return {};
  const uint64_t element = (uint64_t{entry.slot} * 4 + tensor) << kGroupBits | static_cast<uint64_t>(group);
  return philox_words(u.seed, static_cast<uint32_t>(RandomPurpose::kRounding), u.step, element);
}

// Within two units of the last place, at a fraction of the cost of sqrtf and of a division; denormals are zero.
__device__ float square_root(float value) {
  float root;
  asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(root) : "f"(value));
  return root;
}
__device__ float reciprocal(float value) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(value));
  return result;
}

template <class Weight, class Grad, class Moment>
struct Loaded {
  Raw<Grad> g;
  Raw<Weight> w;
  Raw<Moment> m, v;
};

// `Weight` is what weights are kept in between updates: the master's float32, or the parameter's own type.
template <class Value, class Grad, class Moment, bool kMaster>
__global__ void __launch_bounds__(kUpdateThreads, 5) update_pieces(const Entry* entries, int count,
                                                                   const Update* update) {
  using Weight = std::conditional_t<kMaster, float, Value>;
  const Update u = *update;
  float clip = 1;
  if (u.grad_norm != nullptr) {
    const float norm = *u.grad_norm;
    if (!isfinite(norm)) return;
    if (u.max_grad_norm > 0) clip = fminf(1.f, u.max_grad_norm / (norm + 1e-6f));
  }
  const Entry& entry = entry_of(entries, count, blockIdx.x);
  const int64_t begin = (blockIdx.x - entry.first_piece) * kPiece;
  const int64_t end = min(begin + kPiece, entry.elements);
  auto* weights = kMaster ? reinterpret_cast<Weight*>(entry.master) : static_cast<Weight*>(entry.value);
  auto* exp_avg = static_cast<Moment*>(entry.exp_avg);
  auto* exp_avg_sq = static_cast<Moment*>(entry.exp_avg_sq);
  const float weight_decay = entry.weight_decay;
  const auto load = [&](int64_t i, int there) {
    return Loaded<Weight, Grad, Moment>{read(static_cast<const Grad*>(entry.grad) + i, there),
                                        read(weights + i, there), read(exp_avg + i, there),
                                        read(exp_avg_sq + i, there)};
  };
  const auto there_at = [&](int64_t i) { return static_cast<int>(max(int64_t{0}, min(int64_t{kGroup}, end - i))); };
  constexpr int64_t kStep = int64_t{kUpdateThreads} * kGroup;
  int64_t i = begin + int64_t{threadIdx.x} * kGroup;
  auto next = load(i, there_at(i));
  for (; i < end; i += kStep) {
    const int there = there_at(i);
    auto now = next;
    next = load(i + kStep, there_at(i + kStep));  // on its way while this group is computed
    const uint4 for_w = words_for<Weight>(u, entry, 0, i / kGroup), for_m = words_for<Moment>(u, entry, 1, i / kGroup),
                for_v = words_for<Moment>(u, entry, 2, i / kGroup);
    Raw<Value> value;
#pragma unroll
    for (int k = 0; k < kGroup; ++k) {
      const float grad = now.g[k] * clip;
      const float new_m = u.beta1 * now.m[k] + u.rest1 * grad, new_v = u.beta2 * now.v[k] + u.rest2 * grad * grad;
      const float denominator = square_root(new_v * u.inverse2) + u.eps;
      const float step = u.lr * new_m * u.inverse1 * reciprocal(denominator);
      const float new_w = now.w[k] - (u.lr * weight_decay * now.w[k] + step);
      now.m.set(k, rounded<Moment>(new_m, half_word(for_m, k)));
      now.v.set(k, rounded<Moment>(new_v, half_word(for_v, k)));
      now.w.set(k, rounded<Weight>(new_w, half_word(for_w, k)));
      if constexpr (kMaster) value.set(k, narrow<Value>(new_w));
    }
    write(exp_avg + i, now.m, there);
    write(exp_avg_sq + i, now.v, there);
    write(weights + i, now.w, there);
    if constexpr (kMaster) write(static_cast<Value*>(entry.value) + i, value, there);
  }
}

Update update_of(const AdamW& op, const float* grad_norm) {
  const auto inverse = [&](float beta) {
    return static_cast<float>(1 / (1 - std::pow(double{beta}, static_cast<double>(int64_t{op.step}))));
  };
  return {op.lr,
          op.beta1,
          op.beta2,
          1 - op.beta1,
          1 - op.beta2,
          op.eps,
          inverse(op.beta1),
          inverse(op.beta2),
          op.max_grad_norm,
          grad_norm,
          op.seed,
          static_cast<uint64_t>(int64_t{op.step})};
}

void launch(const AdamW& op, const std::vector<Entry>& entries, int64_t pieces) {
  const AdamW::Slot& first = op.slots.front();
  const Device device = first.value.device();
  const std::string name = fmt::format("adamw {}", entries.front().value);
  const Tensor table = upload(name, entries, device);
  // What changes from step to step, read anew where the step is captured; without the slots, whose memory it
  // must not keep.
  AdamW scalars = op;
  scalars.slots.clear();
  const float* grad_norm = op.grad_norm.defined() ? op.grad_norm.data<float>() : nullptr;
  scalars.grad_norm = {};
  const Tensor update = from_host(name + " update", {sizeof(Update)}, DType::kU8, device,
                                  [scalars = std::move(scalars), grad_norm](std::byte* to) {
                                    const Update now = update_of(scalars, grad_norm);
                                    std::memcpy(to, &now, sizeof(now));
                                  });
  const bool master = first.master.defined();
  visit_wide_or_brain(first.value.dtype(), [&]<class Value>() {
    visit_wide_or_brain(first.grad.dtype(), [&]<class Grad>() {
      visit_wide_or_brain(first.exp_avg.dtype(), [&]<class Moment>() {
        const auto run = [&](auto kernel) {
          kernel<<<static_cast<unsigned>(pieces), kUpdateThreads, 0, device::stream(device)>>>(
              static_cast<const Entry*>(table.raw()), static_cast<int>(entries.size()),
              static_cast<const Update*>(update.raw()));
        };
        master ? run(update_pieces<Value, Grad, Moment, true>) : run(update_pieces<Value, Grad, Moment, false>);
      });
    });
  });
  device::check_launch("adamw");
}

void forward(const AdamW& op) {
  std::vector<Entry> entries;
  int64_t pieces = 0;
  for (size_t i = 0; i < op.slots.size(); ++i) {
    const AdamW::Slot& slot = op.slots[i];
    if (slot.value.numel() == 0) continue;
    entries.push_back({slot.value.raw(), slot.master.defined() ? slot.master.data<float>() : nullptr,
                       slot.grad.raw(), slot.exp_avg.raw(), slot.exp_avg_sq.raw(), slot.value.numel(), pieces,
                       static_cast<uint32_t>(i), slot.weight_decay});
    pieces += pieces_of(slot.value.numel());
  }
  if (pieces > 0) launch(op, entries, pieces);
}

}  // namespace

ops::Kernel<AdamW> cuda_adamw_kernel() {
  return {.hardware = hardware::kGpu, .accepts = refuse_float16<AdamW::Signature>, .forward = forward, .repeats = true};
}

}  // namespace temper::backends
