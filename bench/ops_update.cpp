// What runs once per step over all parameters; bound by memory.
#include "bench/ops.h"
#include "ops/adamw/adamw.h"
#include "ops/global_norm/global_norm.h"

namespace temper::bench {
namespace {
constexpr int64_t kParameters = 8 << 20;
}

void add_adamw() {
  using ops::AdamW;
  struct Case {
    const char* name;
    AdamW::Signature kept;
  };
  const DType wide = DType::kF32, half = DType::kBF16;
  for (const auto& [name, kept] :
       {Case{"float32", {wide, false}}, Case{"bfloat16", {half, true}},
        Case{"bfloat16_gradients", {half, true, half}}, Case{"bfloat16_state", {half, false, half, half}}})
    for_each_provider<AdamW>(kept, true, [&](const auto& provider, const auto& ops) {
      add(fmt::format("adamw/{}/8M/{}", provider, name), [kept = kept, ops] {
        AdamW op;
        op.lr = 1e-3f;
        const Shape shape{kParameters};
        AdamW::Slot slot{filled(shape, kept.dtype),          {},
                         filled(shape, kept.grads),          Tensor::zeros(shape, kept.moments),
                         Tensor::zeros(shape, kept.moments), 0.1f};
        if (kept.master) slot.master = slot.value.to(DType::kF32);
        op.slots = {slot};
        // Read and written: weights and both moments; read: the gradient; written: what is rounded from
        // masters.
        const int64_t bytes =
            slot.grad.bytes() + 4 * slot.exp_avg.bytes() +
            (kept.master ? 2 * slot.master.bytes() + slot.value.bytes() : 2 * slot.value.bytes());
        return Work{0, static_cast<double>(bytes), [=] { adamw(ops, op); }};
      });
    });
}

void add_global_norm() {
  using ops::GlobalNorm;
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for_each_provider<GlobalNorm>({dtype}, true, [&](const auto& provider, const auto& ops) {
      add(fmt::format("global_norm/{}/8M/{}", provider, to_string(dtype)), [=] {
        const GlobalNorm op{{filled({kParameters}, dtype)}};
        const auto bytes = static_cast<double>(op.grads[0].bytes());
        return Work{0, bytes, [=] { benchmark::DoNotOptimize(global_norm(ops, op)); }};
      });
    });
}

}  // namespace temper::bench
