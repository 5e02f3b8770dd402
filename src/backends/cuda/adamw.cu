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
  float lr, beta1, beta2, eps, correction1, correction2, max_grad_norm;
  const float* grad_norm;  // or null
  uint64_t seed, step;
};

// Eight elements at a time: they share the random words of one counter.
constexpr int kGroup = 8;
constexpr int kGroupBits = 38;  // as ops::rounding_bits

struct Group {
  float values[kGroup];
};

template <class T>
__device__ Group read(const T* from, int count) {
  Group group{};
  if (count == kGroup && reinterpret_cast<uintptr_t>(from) % 16 == 0) {
    constexpr int kPacks = kGroup / kLanes<T>;
    for (int p = 0; p < kPacks; ++p) {
      const auto pack = load_once<T, kLanes<T>>(from + p * kLanes<T>);
      for (int k = 0; k < kLanes<T>; ++k) group.values[p * kLanes<T> + k] = widen(pack.values[k]);
    }
    return group;
  }
  for (int i = 0; i < count; ++i) group.values[i] = widen(from[i]);
  return group;
}

template <class T>
__device__ T rounded(float value, uint32_t random) {
  if constexpr (std::is_same_v<T, float>) {
    return value;
  } else {
    if (!isfinite(value)) return narrow<T>(value);
    return __ushort_as_bfloat16(static_cast<unsigned short>((__float_as_uint(value) + random) >> 16));
  }
}

// Stores what is narrower than float32 stochastically rounded, or to nearest where `words` is null.
template <class T>
__device__ void write(T* to, const Group& group, int count, const uint4* words) {
  Pack<T, kGroup> pack;
  for (int i = 0; i < kGroup; ++i) {
    if (words == nullptr) {
      pack.values[i] = narrow<T>(group.values[i]);
      continue;
    }
    const uint32_t word = i < 2 ? words->x : i < 4 ? words->y : i < 6 ? words->z : words->w;
    pack.values[i] = rounded<T>(group.values[i], word >> (i % 2 * 16) & 0xFFFF);
  }
  if (count == kGroup && reinterpret_cast<uintptr_t>(to) % 16 == 0) {
    for (int p = 0; p < kGroup / kLanes<T>; ++p)
      store_pack(to + p * kLanes<T>, reinterpret_cast<const Pack<T, kLanes<T>>*>(&pack)[p]);
    return;
  }
  for (int i = 0; i < count; ++i) to[i] = pack.values[i];
}

__device__ uint4 words_for(const Update& u, const Entry& entry, uint32_t tensor, int64_t group) {
  const uint64_t element = (uint64_t{entry.slot} * 4 + tensor) << kGroupBits | static_cast<uint64_t>(group);
  return philox_words(u.seed, static_cast<uint32_t>(RandomPurpose::kRounding), u.step, element);
}

// `Weight` is what weights are kept in between updates: the master's float32, or the parameter's own type.
template <class Value, class Grad, class Moment, bool kMaster>
__global__ void __launch_bounds__(kThreads) update_pieces(const Entry* entries, int count, Update u) {
  using Weight = std::conditional_t<kMaster, float, Value>;
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
  for (int64_t i = begin + int64_t{threadIdx.x} * kGroup; i < end; i += int64_t{kThreads} * kGroup) {
    const int there = static_cast<int>(min(int64_t{kGroup}, end - i));
    const Group g = read(static_cast<const Grad*>(entry.grad) + i, there);
    Group w = read(weights + i, there), m = read(exp_avg + i, there), v = read(exp_avg_sq + i, there);
    for (int k = 0; k < kGroup; ++k) {
      const float grad = g.values[k] * clip;
      m.values[k] = u.beta1 * m.values[k] + (1 - u.beta1) * grad;
      v.values[k] = u.beta2 * v.values[k] + (1 - u.beta2) * grad * grad;
      const float denominator = sqrtf(v.values[k] / u.correction2) + u.eps;
      w.values[k] -=
          u.lr * entry.weight_decay * w.values[k] + u.lr * (m.values[k] / u.correction1) / denominator;
    }
    uint4 words{};
    if constexpr (!std::is_same_v<Moment, float>) words = words_for(u, entry, 1, i / kGroup);
    write(exp_avg + i, m, there, &words);
    if constexpr (!std::is_same_v<Moment, float>) words = words_for(u, entry, 2, i / kGroup);
    write(exp_avg_sq + i, v, there, &words);
    if constexpr (!std::is_same_v<Weight, float>) words = words_for(u, entry, 0, i / kGroup);
    write(weights + i, w, there, &words);
    if constexpr (kMaster) write(static_cast<Value*>(entry.value) + i, w, there, nullptr);
  }
}

Update update_of(const AdamW& op) {
  const auto correction = [&](float beta) {
    return static_cast<float>(1 - std::pow(double{beta}, static_cast<double>(op.step)));
  };
  return {op.lr,
          op.beta1,
          op.beta2,
          op.eps,
          correction(op.beta1),
          correction(op.beta2),
          op.max_grad_norm,
          op.grad_norm.defined() ? op.grad_norm.data<float>() : nullptr,
          op.seed,
          static_cast<uint64_t>(op.step)};
}

void launch(const AdamW& op, const std::vector<Entry>& entries, int64_t pieces) {
  const AdamW::Slot& first = op.slots.front();
  const Device device = first.value.device();
  const Tensor table = upload(entries, device);
  const bool master = first.master.defined();
  visit_wide_or_brain(first.value.dtype(), [&]<class Value>() {
    visit_wide_or_brain(first.grad.dtype(), [&]<class Grad>() {
      visit_wide_or_brain(first.exp_avg.dtype(), [&]<class Moment>() {
        const auto run = [&](auto kernel) {
          kernel<<<static_cast<unsigned>(pieces), kThreads, 0, device::stream(device)>>>(
              static_cast<const Entry*>(table.raw()), static_cast<int>(entries.size()), update_of(op));
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
  return {.hardware = hardware::kGpu, .accepts = refuse_float16<AdamW::Signature>, .forward = forward};
}

}  // namespace temper::backends
