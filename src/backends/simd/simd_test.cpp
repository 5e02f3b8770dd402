#include "backends/test_support.h"
#include "ops/adamw/adamw.h"
#include "ops/embedding/embedding.h"
#include "ops/global_norm/global_norm.h"
#include "ops/rms_norm/rms_norm.h"
#include "ops/rotary/rotary.h"
#include "ops/swiglu/swiglu.h"

namespace temper::backends {
namespace {

using namespace ops;

class Simd : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Dtypes, Simd, testing::Values(DType::kF32, DType::kBF16));

TEST_P(Simd, RmsNorm) {
  for (const int64_t size : {1, 16, 37, 1024})
    expect_faithful("simd", GetParam(), [&](const std::string& provider) {
      const BoundOps ops = bind<RmsNorm>(provider, {GetParam(), size});
      Tape tape;
      const Var x = tape.variable(random_strided({70, 3, size}, GetParam(), 1));
      const Var weight = tape.variable(random_tensor({size}, GetParam(), 2));
      const Var y = add_rms_norm(tape, ops, x, {}, weight, 1e-6f).y;
      tape.backward(y, random_tensor(y.shape(), GetParam(), 3));
      return Results{y.value, x.slot->grad(), weight.slot->grad()};
    });
}

TEST_P(Simd, RmsNormWithAResidual) {
  for (const int64_t size : {1, 37, 1024})
    expect_faithful("simd", GetParam(), [&](const std::string& provider) {
      const BoundOps ops = bind<RmsNorm>(provider, {GetParam(), size});
      Tape tape;
      const Var x = tape.variable(random_tensor({90, size}, GetParam(), 1)),
                residual = tape.variable(random_tensor({90, size}, GetParam(), 2)),
                weight = tape.variable(random_tensor({size}, GetParam(), 3));
      const NormedSum out = add_rms_norm(tape, ops, x, residual, weight, 1e-6f);
      out.sum.slot->add(random_tensor({90, size}, GetParam(), 4));
      tape.backward(out.y, random_tensor({90, size}, GetParam(), 5));
      return Results{out.sum.value, out.y.value, x.slot->grad(), residual.slot->grad(), weight.slot->grad()};
    });
}

TEST_P(Simd, Rotary) {
  for (const bool norm : {false, true})
    for (const int64_t half : {1, 9, 64})
      expect_faithful("simd", GetParam(), [&](const std::string& provider) {
        const BoundOps ops = bind<Rotary>(provider, {GetParam(), 2 * half, norm});
        Tape tape;
        const Var qkv = tape.variable(random_tensor({370, 5 * 2 * half}, GetParam(), 1));
        const auto weight = [&](uint32_t seed) {
          return norm ? tape.variable(random_tensor({2 * half}, GetParam(), seed)) : Var{};
        };
        const Var q_weight = weight(6), k_weight = weight(7);
        const Tensor cos = random_tensor({50, half}, DType::kF32, 2),
                     sin = random_tensor({50, half}, DType::kF32, 3);
        const RotatedHeads out = rotary(tape, ops, qkv, q_weight, k_weight,
                                        {.heads = 3,
                                         .kv_heads = 1,
                                         .eps = 1e-3f,
                                         .positions = random_ids(370, 50, 4),
                                         .cos = cos,
                                         .sin = sin});
        out.k.slot->add(random_tensor(out.k.shape(), GetParam(), 8));
        out.v.slot->add(random_tensor(out.v.shape(), GetParam(), 9));
        tape.backward(out.q, random_tensor(out.q.shape(), GetParam(), 5));
        Results results{out.q.value, out.k.value, qkv.slot->grad()};
        if (norm)
          for (const Var* parameter : {&q_weight, &k_weight}) results.push_back(parameter->slot->grad());
        return results;
      });
}

TEST_P(Simd, Swiglu) {
  for (const int64_t size : {1, 33, 3000})
    expect_faithful("simd", GetParam(), [&](const std::string& provider) {
      const BoundOps ops = bind<Swiglu>(provider, {GetParam(), size});
      Tape tape;
      const Var x = tape.variable(random_tensor({41, 2 * size}, GetParam(), 1, 4));
      const Var y = swiglu(tape, ops, x);
      tape.backward(y, random_tensor(y.shape(), GetParam(), 5));
      return Results{y.value, x.slot->grad()};
    });
}

TEST_P(Simd, SwigluSaturates) {
  const Tensor x = Tensor::from(std::vector<float>{-1000, 1000, std::nanf(""), 2, 3, 4}).reshape({1, 6});
  const Tensor y = kernels<Swiglu>().find("simd")->forward({x});
  EXPECT_NEAR(y.data<float>()[0], 0, 1e-30);
  EXPECT_EQ(y.data<float>()[1], 3000);
  EXPECT_TRUE(std::isnan(y.data<float>()[2]));
}

TEST_P(Simd, Embedding) {
  for (const bool accumulate : {false, true})
    expect_faithful("simd", GetParam(), [&](const std::string& provider) {
      const BoundOps ops = bind<Embedding>(provider, {GetParam(), 37});
      Tape tape;
      const Var table = tape.variable(random_tensor({90, 37}, GetParam(), 1));
      table.slot->set_buffer(random_tensor({90, 37}, DType::kF32, 6));
      if (accumulate) table.slot->target(table.value);
      const Var y = embedding(tape, ops, random_ids(500, 80, 4), table);
      tape.backward(y, random_tensor(y.shape(), GetParam(), 5));
      return Results{y.value, table.slot->grad()};
    });
}

TEST_P(Simd, AdamW) {
  for (const bool master : {false, true}) {
    if (!master && GetParam() != DType::kF32) continue;
    expect_faithful("simd", GetParam(), [&](const std::string& provider) {
      const BoundOps ops = bind<AdamW>(provider, {GetParam()});
      AdamW op{.slots = {},
               .lr = 1e-2f,
               .grad_norm = Tensor::from(std::vector<float>{2.f}),
               .max_grad_norm = 1,
               .step = 3};
      Results results;
      for (const int64_t size : {3, 70001}) {
        const Shape shape{size};
        AdamW::Slot slot{random_tensor(shape, GetParam(), 1),  {},
                         random_tensor(shape, DType::kF32, 2), random_tensor(shape, DType::kF32, 3),
                         Tensor::zeros(shape, DType::kF32),    0.1f};
        for (float& v : slot.exp_avg_sq.values<float>()) v = 1e-3f;
        if (master) slot.master = random_tensor(shape, DType::kF32, 4);
        op.slots.push_back(slot);
        for (const Tensor& part : {slot.value, slot.exp_avg, slot.exp_avg_sq}) results.push_back(part);
        if (master) results.push_back(slot.master);
      }
      adamw(ops, op);
      return results;
    });
  }
}

TEST_P(Simd, GlobalNorm) {
  expect_faithful("simd", DType::kF32, [&](const std::string& provider) {
    const BoundOps ops = bind<GlobalNorm>(provider, {});
    return Results{
        global_norm(ops, {{random_tensor({3}, DType::kF32, 1), random_tensor({70001}, DType::kF32, 2)}})};
  });
}

}  // namespace
}  // namespace temper::backends
