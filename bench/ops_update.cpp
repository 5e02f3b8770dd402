// What runs once per step over all parameters, here over those of gate|up; bound by memory.
#include "bench/ops.h"
#include "ops/adamw/adamw.h"
#include "ops/global_norm/global_norm.h"

namespace temper::bench {
namespace {

Shape parameters(const Size& size) { return {2 * size.model.inner * size.model.hidden}; }

}  // namespace

void add_adamw() {
  using ops::AdamW;
  struct Case {
    const char* name;
    AdamW::Signature kept;
  };
  const DType wide = DType::kF32, half = DType::kBF16;
  for (const auto& [kind, kept] :
       {Case{"float32", {wide, false}}, Case{"bfloat16", {half, true}},
        Case{"bfloat16_gradients", {half, true, half}}, Case{"bfloat16_state", {half, false, half, half}}})
    for (const Size& size : sizes())
      for_each_provider<AdamW>(kept, fmt::format("{}/{}", kind, size.model.name), size.eager,
                               [&, kept = kept](const auto& name, const auto& ops) {
                                 add(name + "/update", kept.dtype, [=, shape = parameters(size)] {
                                   AdamW op;
                                   op.lr = 1e-3f;
                                   AdamW::Slot slot{filled(shape, kept.dtype),  {},
                                                    filled(shape, kept.grads),  zeros(shape, kept.moments),
                                                    zeros(shape, kept.moments), 0.1f};
                                   if (kept.master) slot.master = slot.value.to(DType::kF32);
                                   op.slots = {slot};
                                   return Timed{[=] { adamw(ops, op); }};
                                 });
                               });
}

void add_global_norm() {
  using ops::GlobalNorm;
  for (const DType dtype : kDTypes)
    for (const Size& size : sizes())
      for_each_provider<GlobalNorm>({dtype}, label(dtype, size.model.name), size.eager,
                                    [&](const auto& name, const auto& ops) {
                                      add(name + "/update", dtype, [=, shape = parameters(size)] {
                                        const GlobalNorm op{{filled(shape, dtype)}, machine().device};
                                        return Timed{[=] { global_norm(ops, op); }};
                                      });
                                    });
}

}  // namespace temper::bench
