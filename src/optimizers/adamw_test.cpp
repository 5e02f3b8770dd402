#include "optimizers/adamw.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/tiny_model.h"

namespace temper::optimizers {
namespace {

// Gradients where backward would leave them: a function of parameter and element.
template <class F>
void set_gradients(layers::ParameterStore& parameters, F&& value) {
  for (size_t p = 0; p < parameters.size(); ++p) {
    float* grad = parameters[p].grad->target(parameters[p].value).buffer.data<float>();
    for (int64_t i = 0; i < parameters[p].value.numel(); ++i) grad[i] = value(p, i);
  }
}

auto waves(int step) {
  return [step](size_t p, int64_t i) {
    return std::sin(static_cast<float>(i + step) * 0.7f + static_cast<float>(p));
  };
}

TEST(AdamWOptimizer, ContinuesFromItsState) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const auto whole = tiny_model({.dtype = dtype}), part = tiny_model({.dtype = dtype});
    const AdamWOptions options{.weight_decay = 0.1};
    AdamW straight(whole->decoder.parameters(), whole->decoder.ops(), options);
    std::vector<std::pair<std::string, Tensor>> saved;
    for (int step = 0; step < 4; ++step) {
      set_gradients(whole->decoder.parameters(), waves(step));
      straight.step(1e-2);
      if (step == 1)
        for (const PlacedTensor& tensor : straight.state())
          saved.emplace_back(tensor.name, tensor.own.clone());
    }
    AdamW resumed(part->decoder.parameters(), part->decoder.ops(), options);
    const auto state = resumed.state();
    ASSERT_EQ(state.size(), saved.size());
    for (size_t i = 0; i < state.size(); ++i) {
      EXPECT_EQ(state[i].name, saved[i].first);
      state[i].own.copy_from(saved[i].second);
    }
    resumed.restored(2);
    EXPECT_EQ(resumed.steps(), 2);
    for (int step = 2; step < 4; ++step) {
      set_gradients(part->decoder.parameters(), waves(step));
      resumed.step(1e-2);
    }
    for (size_t p = 0; p < part->decoder.parameters().size(); ++p) {
      const Tensor a = part->decoder.parameters()[p].value.to(DType::kF32),
                   b = whole->decoder.parameters()[p].value.to(DType::kF32);
      for (int64_t i = 0; i < a.numel(); ++i) ASSERT_EQ(a.data<float>()[i], b.data<float>()[i]);
    }
  }
}

TEST(AdamWOptimizer, KeepsMastersOnlyForLowerPrecision) {
  const auto full = tiny_model(), half = tiny_model({.dtype = DType::kBF16});
  const AdamW a(full->decoder.parameters(), full->decoder.ops(), {});
  const AdamW b(half->decoder.parameters(), half->decoder.ops(), {});
  EXPECT_EQ(a.state().front().name, "parameter." + full->decoder.parameters().spec(0).name);
  EXPECT_EQ(b.state().front().name, "master." + half->decoder.parameters().spec(0).name);
  EXPECT_EQ(b.state().front().own.dtype(), DType::kF32);
}

TEST(AdamWOptimizer, MastersKeepStepsBelowTheirDTypesPrecision) {
  // 1e-5 vanishes against a bfloat16 weight near 1, but a hundred of them do not.
  const auto model = tiny_model({.dtype = DType::kBF16});
  auto& parameters = model->decoder.parameters();
  AdamW optimizer(parameters, model->decoder.ops(), {});
  Tensor norm = parameters.at("norm.weight").value;
  const float before = norm.to(DType::kF32).data<float>()[0];
  for (int i = 0; i < 1000; ++i) {
    set_gradients(parameters, [](size_t, int64_t) { return 1.f; });
    optimizer.step(1e-5);
  }
  EXPECT_NEAR(norm.to(DType::kF32).data<float>()[0], before - 0.01f, 0.005f);
}

TEST(AdamWOptimizer, NormsAndBiasesDoNotDecay) {
  for (const bool all : {false, true}) {
    const auto model = tiny_model();
    auto& parameters = model->decoder.parameters();
    AdamW optimizer(parameters, model->decoder.ops(), {.weight_decay = 0.5, .decay_all = all});
    EXPECT_EQ(optimizer.grad_norm().item(), 0);  // no gradient yet: zero, whatever the memory held
    optimizer.step(0.1);
    for (size_t p = 0; p < parameters.size(); ++p) {
      const bool norm = parameters[p].value.ndim() == 1;
      EXPECT_EQ(parameters.spec(p).decay, !norm) << parameters.spec(p).name;
      const float expected = all ? 0.95f : 1.f;
      EXPECT_TRUE(!norm || std::fabs(parameters[p].value.data<float>()[0] - expected) < 1e-6f);
    }
  }
}

}  // namespace
}  // namespace temper::optimizers
