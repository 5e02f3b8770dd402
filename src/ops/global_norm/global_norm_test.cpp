#include "ops/global_norm/global_norm.h"

#include <cmath>
#include <limits>

#include "tensor/host_inputs.h"
#include "tests/support/op_testing.h"

namespace temper::ops {
namespace {

using namespace op_testing;

const RequiredKernels<GlobalNorm> kGlobalNormKernels{
    {}, kWide, {{"simd", "simd", kCpu, kWide}, {"cuda", "cuda", kGpu, kWide}}};

void check(const std::vector<Tensor>& grads, std::string_view name) {
  double sum = 0;
  for (const Tensor& grad : grads)
    for (const double g : values_of(grad)) sum += g * g;
  for (const BoundKernel& kernel :
       bind_everywhere<GlobalNorm>({grads.empty() ? DType::kF32 : grads[0].dtype()})) {
    SCOPED_TRACE(fmt::format("{}, {}", kernel.provider, name));
    const Threads two(2);
    GlobalNorm op;
    op.device = kernel.device;
    for (const Tensor& grad : grads) op.grads.push_back(grad.on(kernel.device));
    const float norm = global_norm(kernel.ops, op).item();
    EXPECT_FLOAT_EQ(norm, static_cast<float>(std::sqrt(sum)));
    EXPECT_EQ(global_norm(kernel.ops, op).item(), norm) << "second run";
    const Threads one(1);
    EXPECT_EQ(global_norm(kernel.ops, op).item(), norm) << "one thread";
  }
}

Tensor grad(const Shape& shape, double scale = 1) {
  return tensor_of(normal(static_cast<uint64_t>(shape.numel()), shape, scale), shape, DType::kF32);
}

TEST(GlobalNorm, EveryKernelAgrees) {
  check({}, "no gradients");
  check({grad({0})}, "an empty gradient");
  for (const int64_t size : {1, 7, 64, 100, 513, 4096, 65537})
    check({grad({size})}, fmt::format("{} values", size));
  check({grad({3, 5}), grad({0, 4}), grad({70, 100}), grad({1}), grad({200'003})}, "several gradients");
}

TEST(GlobalNorm, Bfloat16) {
  const Tensor a = grad({5000}).to(DType::kBF16), b = grad({3, 3}).to(DType::kBF16);
  check({a, b}, "bfloat16");
}

// Ranks have parts: what they send one another loses nothing that would change the norm's last bit.
TEST(GlobalNorm, OfPartsIsThatOfTheWhole) {
  const Tensor all = grad({40'000});
  for (const BoundKernel& kernel : bind_everywhere<GlobalNorm>({DType::kF32})) {
    SCOPED_TRACE(kernel.provider);
    const auto norm = [&](std::vector<Tensor> grads, bool in_two) {
      return global_norm(kernel.ops, {std::move(grads), kernel.device, in_two}).on({});
    };
    // Of many lengths, as the roots of some parts are near others in float32 by chance.
    for (int64_t length = 39'000; length < 39'012; ++length) {
      const Tensor whole = all.narrow(0, 0, length).on(kernel.device);
      for (const int64_t border : {int64_t{1}, int64_t{12'345}, length - 7}) {
        const Tensor a = norm({whole.narrow(0, 0, border)}, true),
                     b = norm({whole.narrow(0, border, length - border).clone()}, true);
        ASSERT_EQ(a.numel(), 2);
        const Tensor sent = Tensor::from(std::vector<float>{a.data<float>()[0], a.data<float>()[1],
                                                            b.data<float>()[0], b.data<float>()[1]});
        EXPECT_EQ(norm({norm({sent.on(kernel.device)}, true).on(kernel.device)}, false).item(),
                  norm({whole}, false).item())
            << length << " " << border;
      }
    }
  }
}

TEST(GlobalNorm, HugeAndTinyValues) {
  check({grad({100}, 1e30), grad({100}, 1e-30)}, "squares beyond float32");
  check({grad({1000}, 1e-30)}, "squares below float32");
  check({grad({70}, 1e-41)}, "denormal");
  check({grad({50'000}, 1e-4), grad({1}, 1e8)}, "one large among many small");
  check({Tensor::zeros({40}, DType::kF32)}, "zeros");
}

TEST(GlobalNorm, WhatIsNotFiniteShows) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  for (const BoundKernel& kernel : bind_everywhere<GlobalNorm>({})) {
    Doubles values = normal(1, {100});
    values[63] = -kInf;
    EXPECT_EQ(
        global_norm(kernel.ops, {{tensor_of(values, {100}, DType::kF32).on(kernel.device)}, kernel.device})
            .item(),
        kInf)
        << kernel.provider;
    values[99] = std::nan("");
    EXPECT_TRUE(std::isnan(
        global_norm(kernel.ops, {{tensor_of(values, {100}, DType::kF32).on(kernel.device)}, kernel.device})
            .item()))
        << kernel.provider;
  }
}

// Norms of norms of ranks: what they gather lies where others lay before.
TEST(GlobalNorm, OfMemoryThatOneStepUsesTwice) {
  for (const BoundKernel& kernel : bind_everywhere<GlobalNorm>({DType::kF32})) {
    SCOPED_TRACE(kernel.provider);
    const Tensor four = Tensor::from(std::vector<float>{3, 4, 12, 84}).on(kernel.device);
    HostInputs inputs(kernel.device);
    const HostInputs::Scope step(inputs, false);
    const auto norm_of_first = [&](int64_t count) {
      return global_norm(kernel.ops, {{four.narrow(0, 0, count)}, kernel.device}).item();
    };
    EXPECT_EQ(norm_of_first(4), 85);
    EXPECT_EQ(norm_of_first(2), 5);
    EXPECT_EQ(norm_of_first(3), 13);
  }
}

TEST(GlobalNorm, ChecksAtTheFrontDoor) {
  const BoundOps ops = bind_kernel<GlobalNorm>("eager", {});
  expect_error([&] { global_norm(ops, {{grad({4}), Tensor()}}); }, "[global_norm] grad is missing");
  expect_error([&] { global_norm(ops, {{grad({4}).to(DType::kF16)}}); },
               "[global_norm] grad is float16, needs float32");
  expect_error(
      [&] {
        global_norm(ops, {{grad({4}), grad({4}).to(DType::kBF16)}});
      },
      "[global_norm] grad is bfloat16, needs float32");
  expect_error(
      [&] {
        global_norm(ops, {{grad({4, 2}).transpose(0, 1)}});
      },
      "[global_norm] grad [2, 4] has strides [1, 2], needs them without gaps");
}

}  // namespace
}  // namespace temper::ops
