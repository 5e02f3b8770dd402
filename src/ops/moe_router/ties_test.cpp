#include <algorithm>

#include "ops/moe_router/moe_router.h"
#include "tests/support/op_testing.h"

namespace temper::ops {
namespace {

using namespace op_testing;

// A million tokens, of which nearly all have ties: of equal scores the first expert is chosen, by all
// kernels.
TEST(MoeRouter, TiesOfManyTokensFallToTheFirst) {
  constexpr int64_t kTokens = 1'000'000;
  constexpr size_t kExperts = 8, kTopK = 2;
  const Routing routing{.experts = kExperts, .top_k = kTopK};
  const Tensor bits = Tensor::empty({kTokens, kExperts}, DType::kF32, MemoryTag::kData);
  uint32_t state = 1;
  for (float& value : bits.values<float>()) {
    state = state * 1664525 + 1013904223;
    value = static_cast<float>(state >> 28) / 4 - 2;  // sixteen values, exact in every dtype
  }
  std::vector<int32_t> expected(kTokens * kTopK);
  for (size_t t = 0; t < kTokens; ++t) {
    const float* logits = bits.data<float>() + t * kExperts;
    size_t first = 0, second = 1;
    for (size_t e = 1; e < kExperts; ++e)
      if (logits[e] > logits[first]) first = e;
    second = first == 0 ? 1 : 0;
    for (size_t e = 0; e < kExperts; ++e)
      if (e != first && logits[e] > logits[second]) second = e;
    expected[t * kTopK] = static_cast<int32_t>(first);
    expected[t * kTopK + 1] = static_cast<int32_t>(second);
  }
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const Tensor logits = bits.to(dtype);
    for (const BoundKernel& kernel : bind_everywhere<MoeRouter>({dtype, kExperts, kTopK})) {
      Tape tape(false);
      MoeRouter op;
      op.routing = routing;
      const auto routes = moe_router(tape, kernel.ops, tape.constant(logits.on(kernel.device)), op, false);
      const Tensor chosen = routes.ids.on({});
      const auto ids = chosen.values<int32_t>();
      EXPECT_TRUE(std::equal(ids.begin(), ids.end(), expected.begin()))
          << kernel.provider << to_string(dtype);
    }
  }
}

}  // namespace
}  // namespace temper::ops
