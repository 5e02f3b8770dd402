#include "ops/adamw/adamw.h"

#include <bit>
#include <cmath>

#include "base/tracing/trace.h"
#include "ops/checks.h"
#include "ops/op_info.h"

namespace temper::ops {
namespace {

// Eight elements share the four words of one counter; a slot has room for 2^38 of such groups per tensor.
constexpr int kGroupBits = 38;

// One tensor of a slot, read and written as float32 whatever it is kept in.
class State {
 public:
  State(const AdamW& op, size_t slot, RoundedTensor which, const Tensor& tensor)
      : bits_(rounding_bits(op, slot, which)), tensor_(tensor) {}

  float get(int64_t i) const {
    return tensor_.dtype() == DType::kF32 ? tensor_.data<float>()[i]
                                          : static_cast<float>(tensor_.data<BFloat16>()[i]);
  }
  void set(int64_t i, float value) const {
    if (tensor_.dtype() == DType::kF32)
      tensor_.data<float>()[i] = value;
    else
      tensor_.data<BFloat16>()[i].bits = rounded(value, bits_[i]);
  }

 private:
  static uint16_t rounded(float value, uint32_t random) {
    if (!std::isfinite(value)) return BFloat16(value).bits;
    return static_cast<uint16_t>((std::bit_cast<uint32_t>(value) + random) >> 16);
  }

  RoundingBits bits_;
  const Tensor& tensor_;
};

void update_slot(const AdamW& op, size_t index, float clip) {
  const AdamW::Slot& slot = op.slots[index];
  const auto correction1 =
      static_cast<float>(1 - std::pow(double{op.beta1}, static_cast<double>(int64_t{op.step})));
  const auto correction2 =
      static_cast<float>(1 - std::pow(double{op.beta2}, static_cast<double>(int64_t{op.step})));
  const State w(op, index, RoundedTensor::kValue, slot.master.defined() ? slot.master : slot.value),
      m(op, index, RoundedTensor::kExpAvg, slot.exp_avg),
      v(op, index, RoundedTensor::kExpAvgSq, slot.exp_avg_sq);
  const Tensor grad = slot.grad.to(DType::kF32);
  for (int64_t i = 0; i < slot.value.numel(); ++i) {
    const float g = grad.data<float>()[i] * clip, old = w.get(i);
    const float new_m = op.beta1 * m.get(i) + (1 - op.beta1) * g;
    const float new_v = op.beta2 * v.get(i) + (1 - op.beta2) * g * g;
    const float denominator = std::sqrt(new_v / correction2) + op.eps;
    m.set(i, new_m);
    v.set(i, new_v);
    w.set(i, old - (op.lr * slot.weight_decay * old + op.lr * (new_m / correction1) / denominator));
  }
  if (slot.master.defined()) slot.value.copy_from(slot.master);
}

// Plain loops: the update is element-wise, so it is its own composition. On a device it works on copies.
void compose(const AdamW& op) {
  const float clip = op.clip();
  if (std::isnan(clip)) return;
  AdamW here = op;
  for (size_t i = 0; i < op.slots.size(); ++i) {
    AdamW::Slot& slot = here.slots[i];
    for (Tensor* tensor : {&slot.value, &slot.master, &slot.grad, &slot.exp_avg, &slot.exp_avg_sq})
      if (tensor->defined()) *tensor = tensor->on({});
    update_slot(here, i, clip);
    const AdamW::Slot& there = op.slots[i];
    if (there.value.device() == Device{}) continue;
    for (const auto& [to, from] : {std::pair{&there.value, &slot.value},
                                   {&there.master, &slot.master},
                                   {&there.exp_avg, &slot.exp_avg},
                                   {&there.exp_avg_sq, &slot.exp_avg_sq}})
      if (to->defined()) to->copy_from(*from);
  }
}

void check_slot(const AdamW::Slot& slot) {
  constexpr auto name = AdamW::kName;
  check_float(name, "value", slot.value);
  const Shape& shape = slot.value.shape();
  check_contiguous(name, "value", slot.value);
  if (slot.master.defined()) {
    check_dtype(name, "master", slot.master, DType::kF32);
    check_shape(name, "master", slot.master, shape);
    check_contiguous(name, "master", slot.master);
  } else if (slot.value.dtype() == DType::kF16) {
    fail("[adamw] value is float16 without master weights, needs float32 or bfloat16");
  }
  for (const auto& [label, tensor] :
       {std::pair{"grad", &slot.grad}, {"exp_avg", &slot.exp_avg}, {"exp_avg_sq", &slot.exp_avg_sq}}) {
    check_shape(name, label, *tensor, shape);
    if (tensor->dtype() != DType::kBF16) check_dtype(name, label, *tensor, DType::kF32);
    check_contiguous(name, label, *tensor);
  }
  check_dtype(name, "exp_avg_sq", slot.exp_avg_sq, slot.exp_avg.dtype());
  if (slot.first < 0 || slot.first % 8 != 0) fail("[adamw] first is {}, needs a multiple of 8", slot.first);
}

}  // namespace

float AdamW::clip() const {
  if (!grad_norm.defined()) return 1;
  const float norm = grad_norm.item();
  if (!std::isfinite(norm)) return NAN;
  // As PyTorch's clip_grad_norm_: the small term keeps a norm of zero harmless.
  return max_grad_norm > 0 ? std::min(1.f, max_grad_norm / (norm + 1e-6f)) : 1.f;
}

RoundingBits rounding_bits(const AdamW& op, size_t slot, RoundedTensor tensor) {
  return {
      Random(op.seed, RandomPurpose::kRounding, static_cast<uint64_t>(int64_t{op.step})),
      (((static_cast<uint64_t>(op.first_slot) + slot) * 4 + static_cast<uint32_t>(tensor)) << kGroupBits) +
          static_cast<uint64_t>(op.slots[slot].first) / 8};
}

uint32_t RoundingBits::operator[](int64_t element) const {
  const auto words = random.words(first + static_cast<uint64_t>(element) / 8);
  const auto place = static_cast<unsigned>(element % 8);
  return words[place / 2] >> (place % 2 * 16) & 0xFFFF;
}

void adamw(Bound<AdamW> bound, const AdamW& op) {
  for (const AdamW::Slot& slot : op.slots) check_slot(slot);
  if (op.step < 1) fail("[adamw] step is {}, needs to count from 1", op.step);
  if (op.grad_norm.defined()) {
    check_shape(AdamW::kName, "grad_norm", op.grad_norm, {1});
    check_dtype(AdamW::kName, "grad_norm", op.grad_norm, DType::kF32);
  }
  const trace::Span span(AdamW::kName, [&] {
    double bytes = 0;
    for (const AdamW::Slot& slot : op.slots)
      bytes +=
          static_cast<double>(2 * slot.value.bytes() + (slot.master.defined() ? 2 * slot.master.bytes() : 0) +
                              slot.grad.bytes() + 4 * slot.exp_avg.bytes());
    return trace::OpWork{{0, bytes}, {}};
  });
  const auto& kernel = *bound;
  if (kernel.compose != nullptr)
    kernel.compose(op);
  else
    kernel.forward(op);
}

namespace {

void outline_update(const AdamW&) {}

}  // namespace

Probe adamw_probe;

void register_adamw() {
  register_op<AdamW>(compose, adamw_probe, {outline_update, nullptr, outline_update},
                     {.cpu = {{{"simd", "simd"}}}, .gpu = {{{"cuda", "cuda"}}}});
}

}  // namespace temper::ops
