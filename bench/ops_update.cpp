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
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for_each_provider<AdamW>({dtype}, true, [&](const auto& provider, const auto& ops) {
      // Read and written: weights and both moments; read: the gradient; written: the rounded weights.
      const double bytes = kParameters * (dtype == DType::kF32 ? 28.0 : 30.0);
      add(fmt::format("adamw/{}/8M/{}", provider, to_string(dtype)), [=] {
        AdamW op;
        op.lr = 1e-3f;
        AdamW::Slot slot{
            filled({kParameters}, dtype), {},  filled({kParameters}, DType::kF32), zeroed({kParameters}),
            zeroed({kParameters}),        0.1f};
        if (dtype == DType::kBF16) slot.master = slot.value.to(DType::kF32);
        op.slots = {slot};
        return Work{0, bytes, [=] { adamw(ops, op); }};
      });
    });
}

void add_global_norm() {
  using ops::GlobalNorm;
  for_each_provider<GlobalNorm>({}, true, [&](const auto& provider, const auto& ops) {
    add(fmt::format("global_norm/{}/8M", provider), [=] {
      const GlobalNorm op{{filled({kParameters}, DType::kF32)}};
      return Work{0, kParameters * 4.0, [=] { benchmark::DoNotOptimize(global_norm(ops, op)); }};
    });
  });
}

}  // namespace temper::bench
