// One launch updates all parameters that are kept alike; each byte of weights, gradients and moments is read and written once.
#include <algorithm>
#include <cmath>

#include "backends/cuda/sampling/philox.h"
#include "backends/cuda/pieces.h"
#include "backends/floats.h"
#include "backends/gpu/device_code.h"
#include "ops/adamw/adamw.h"

namespace temper::backends {
namespace {

using ops::AdamW;

struct Entry {
  void* value;
  float* master;  // or null
  const void* grad;
  void *exp_avg, *exp_avg_sq;
  int64_t elements, first_piece, first_group;
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
constexpr int kUpdateThreads = 128, kUpdateBlocks = 5;
constexpr int kGroupBits = 38;  // as ops::rounding_bits

// A group as it lies in memory. Nothing unpacks it before it is used: whoever did would wait for one load before
// the next is sent out.
template <class T>
struct Raw {
  static constexpr int kPacks = kGroup * sizeof(T) / 16;
  uint4 packs[kPacks];

  __device__ uint32_t* words() { return reinterpret_cast<uint32_t*>(packs); }
  __device__ float operator[](int i) const {
    const uint32_t word = reinterpret_cast<const uint32_t*>(packs)[i * sizeof(T) / 4];
    if constexpr (sizeof(T) == 4) return __uint_as_float(word);
    return __uint_as_float(i % 2 == 0 ? word << 16 : word & 0xFFFF0000u);
  }
};

template <class T>
__device__ Raw<T> read(const T* from) {
  Raw<T> raw;
  for (int p = 0; p < Raw<T>::kPacks; ++p) raw.packs[p] = __ldcs(reinterpret_cast<const uint4*>(from) + p);
  return raw;
}

template <class T>
__device__ void write(T* to, const Raw<T>& raw) {
  for (int p = 0; p < Raw<T>::kPacks; ++p) __stcs(reinterpret_cast<uint4*>(to) + p, raw.packs[p]);
}

// Rounds up with the probability of the part that is cut off: the result is in the upper half. Infinity stays
// itself under the sum, NaN might not.
__device__ uint32_t rounded(float value, uint32_t half_word) {
  return value == value ? __float_as_uint(value) + half_word : 0x7FFF0000u;
}

__device__ uint32_t word_of(const uint4& words, int i) {
  return i == 0 ? words.x : i == 1 ? words.y : i == 2 ? words.z : words.w;
}

// A group that is kept as T; float32 is not rounded.
template <class T>
__device__ Raw<T> kept(const float (&values)[kGroup], const uint4& random) {
  Raw<T> raw;
  if constexpr (sizeof(T) == 4) {
    for (int i = 0; i < kGroup; ++i) raw.words()[i] = __float_as_uint(values[i]);
  } else {
    for (int i = 0; i < kGroup / 2; ++i)
      raw.words()[i] = __byte_perm(rounded(values[2 * i], word_of(random, i) & 0xFFFF),
                                   rounded(values[2 * i + 1], word_of(random, i) >> 16), 0x7632);
  }
  return raw;
}

// The same of its element i.
template <class T>
__device__ T kept(float value, const uint4& random, int i) {
  if constexpr (sizeof(T) == 4) return value;
  const uint32_t bits = rounded(value, word_of(random, i / 2) >> (i % 2 * 16) & 0xFFFF);
  return __ushort_as_bfloat16(static_cast<unsigned short>(bits >> 16));
}

template <class T>
__device__ uint4 random_of(const Update& u, uint32_t slot, ops::RoundedTensor tensor, int64_t group) {
  if constexpr (std::is_same_v<T, float>) return {};
  const uint64_t stream = (uint64_t{slot} * 4 + static_cast<uint32_t>(tensor)) << kGroupBits;
  return philox_words(u.seed, static_cast<uint32_t>(RandomPurpose::kRounding), u.step,
                      stream | static_cast<uint64_t>(group));
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

// One tensor of the update. `Weight` is what weights are kept in between updates: the master's float32, or the
// parameter's own type.
template <class Value, class Grad, class Moment, bool kMaster>
class Slot {
 public:
  using Weight = std::conditional_t<kMaster, float, Value>;
  struct Group {
    Raw<Grad> g;
    Raw<Weight> w;
    Raw<Moment> m, v;
  };

  __device__ Slot(const Entry& entry, const Update& u, float clip)
      : value_(static_cast<Value*>(entry.value)),
        weight_(kMaster ? reinterpret_cast<Weight*>(entry.master) : static_cast<Weight*>(entry.value)),
        grad_(static_cast<const Grad*>(entry.grad)),
        exp_avg_(static_cast<Moment*>(entry.exp_avg)),
        exp_avg_sq_(static_cast<Moment*>(entry.exp_avg_sq)),
        slot_(entry.slot),
        first_group_(entry.first_group),
        decay_(u.lr * entry.weight_decay),
        clip_(clip),
        u_(u) {}

  // Whether packs can be loaded from all of it.
  __device__ bool aligned() const {
    const auto at = [](const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); };
    return (at(value_) | at(weight_) | at(grad_) | at(exp_avg_) | at(exp_avg_sq_)) % 16 == 0;
  }

  __device__ Group load(int64_t group) const {
    const int64_t i = group * kGroup;
    return {read(grad_ + i), read(weight_ + i), read(exp_avg_ + i), read(exp_avg_sq_ + i)};
  }

  __device__ void update_group(int64_t group, const Group& old) const {
    const uint4 for_w = random_of<Weight>(u_, slot_, ops::RoundedTensor::kValue, first_group_ + group),
                for_m = random_of<Moment>(u_, slot_, ops::RoundedTensor::kExpAvg, first_group_ + group),
                for_v = random_of<Moment>(u_, slot_, ops::RoundedTensor::kExpAvgSq, first_group_ + group);
    float w[kGroup], m[kGroup], v[kGroup];
    for (int k = 0; k < kGroup; ++k) {
      w[k] = old.w[k];
      m[k] = old.m[k];
      v[k] = old.v[k];
      move(old.g[k], w[k], m[k], v[k]);
    }
    const int64_t i = group * kGroup;
    write(exp_avg_ + i, kept<Moment>(m, for_m));
    write(exp_avg_sq_ + i, kept<Moment>(v, for_v));
    write(weight_ + i, kept<Weight>(w, for_w));
    if constexpr (kMaster) {
      Raw<Value> narrowed;
      for (int k = 0; k < kGroup; ++k) reinterpret_cast<Value*>(narrowed.packs)[k] = narrow<Value>(w[k]);
      write(value_ + i, narrowed);
    }
  }

  __device__ void update_one(int64_t i) const {
    const int64_t group = i / kGroup;
    const int place = static_cast<int>(i % kGroup);
    float w = widen(weight_[i]), m = widen(exp_avg_[i]), v = widen(exp_avg_sq_[i]);
    move(widen(grad_[i]), w, m, v);
    exp_avg_[i] = kept<Moment>(m, random_of<Moment>(u_, slot_, ops::RoundedTensor::kExpAvg, first_group_ + group), place);
    exp_avg_sq_[i] = kept<Moment>(v, random_of<Moment>(u_, slot_, ops::RoundedTensor::kExpAvgSq, first_group_ + group), place);
    weight_[i] = kept<Weight>(w, random_of<Weight>(u_, slot_, ops::RoundedTensor::kValue, first_group_ + group), place);
    if constexpr (kMaster) value_[i] = narrow<Value>(w);
  }

 private:
  __device__ void move(float grad, float& w, float& m, float& v) const {
    const float g = grad * clip_;
    m = u_.beta1 * m + u_.rest1 * g;
    v = u_.beta2 * v + u_.rest2 * g * g;
    const float denominator = square_root(v * u_.inverse2) + u_.eps;
    w -= decay_ * w + u_.lr * m * u_.inverse1 * reciprocal(denominator);
  }

  Value* value_;
  Weight* weight_;
  const Grad* grad_;
  Moment *exp_avg_, *exp_avg_sq_;
  uint32_t slot_;
  int64_t first_group_;
  float decay_, clip_;
  const Update& u_;
};

// A block takes a piece of one tensor.
template <class Value, class Grad, class Moment, bool kMaster>
__global__ void __launch_bounds__(kUpdateThreads, kUpdateBlocks)
    update_pieces(const Entry* entries, int count, const Update* update) {
  const Update u = *update;
  float clip = 1;
  if (u.grad_norm != nullptr) {
    const float norm = *u.grad_norm;
    if (!isfinite(norm)) return;
    if (u.max_grad_norm > 0) clip = fminf(1.f, u.max_grad_norm / (norm + 1e-6f));
  }
  const Entry& entry = entry_of(entries, count, blockIdx.x);
  const Slot<Value, Grad, Moment, kMaster> slot(entry, u, clip);
  const int64_t begin = (blockIdx.x - entry.first_piece) * kPiece, end = min(begin + kPiece, entry.elements);
  const int64_t groups = slot.aligned() ? end / kGroup : begin / kGroup;
  int64_t group = begin / kGroup + threadIdx.x;
  if (group < groups) {
    auto next = slot.load(group);
    for (; group < groups; group += kUpdateThreads) {
      const auto now = next;
      if (group + kUpdateThreads < groups) next = slot.load(group + kUpdateThreads);  // on its way meanwhile
      slot.update_group(group, now);
    }
  }
  for (int64_t i = groups * kGroup + threadIdx.x; i < end; i += kUpdateThreads) slot.update_one(i);
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

bool kept_alike(const AdamW::Slot& a, const AdamW::Slot& b) {
  return a.value.dtype() == b.value.dtype() && a.master.defined() == b.master.defined() &&
         a.grad.dtype() == b.grad.dtype() && a.exp_avg.dtype() == b.exp_avg.dtype();
}

// Of slots that are kept as `first` is.
void launch(const AdamW& op, const AdamW::Slot& first, const std::vector<Entry>& entries, int64_t pieces) {
  const Device device = first.value.device();
  const std::string name = fmt::format("adamw {}", entries.front().value);
  const Tensor table = upload(name, entries, device);
  // The values that change from step to step; a captured step reads them again at each replay. Without the slots,
  // whose memory must not be kept.
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

// The slots of `op` that are kept as `first` is.
void update_alike(const AdamW& op, const AdamW::Slot& first) {
  std::vector<Entry> entries;
  int64_t pieces = 0;
  for (size_t i = 0; i < op.slots.size(); ++i) {
    const AdamW::Slot& slot = op.slots[i];
    if (slot.value.numel() == 0 || !kept_alike(slot, first)) continue;
    entries.push_back({slot.value.raw(), slot.master.defined() ? slot.master.data<float>() : nullptr,
                       slot.grad.raw(), slot.exp_avg.raw(), slot.exp_avg_sq.raw(), slot.value.numel(), pieces,
                       slot.first / kGroup, static_cast<uint32_t>(op.first_slot) + static_cast<uint32_t>(i), slot.weight_decay});
    pieces += pieces_of(slot.value.numel());
  }
  if (pieces > 0) launch(op, first, entries, pieces);
}

void forward(const AdamW& op) {
  std::vector<const AdamW::Slot*> kinds;
  for (const AdamW::Slot& slot : op.slots) {
    const auto known = [&](const AdamW::Slot* kind) { return kept_alike(*kind, slot); };
    if (std::none_of(kinds.begin(), kinds.end(), known)) kinds.push_back(&slot);
  }
  for (const AdamW::Slot* kind : kinds) update_alike(op, *kind);
}

}  // namespace

void register_cuda_adamw() {
  ops::kernels<AdamW>().add(
      "cuda",
      {.hardware = hardware::kGpu, .accepts = refuse_float16<AdamW::Signature>, .forward = forward, .repeats = true});
}

}  // namespace temper::backends
