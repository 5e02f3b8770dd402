#include "ops/cross_entropy/cross_entropy.h"
#include "backends/test_support.h"

namespace temper::backends {
namespace {

using namespace ops;

class OnednnCrossEntropy : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Dtypes, OnednnCrossEntropy, testing::Values(DType::kF32, DType::kBF16));

Tensor targets_with_gaps(int64_t tokens, int64_t vocab) {
  const Tensor targets = random_ids(tokens, vocab, 3);
  for (int64_t t = 0; t < tokens; t += 3) targets.data<int32_t>()[t] = CrossEntropy::kIgnore;
  return targets;
}

Results results(const std::string& provider, DType dtype, const Tensor& targets, int64_t hidden,
                int64_t vocab, bool accumulate, DType gradients = DType::kF32) {
  const BoundOps ops = bind<CrossEntropy>(provider, {dtype, hidden, vocab});
  Tape tape;
  const Var h = tape.variable(random_tensor({targets.numel(), hidden}, dtype, 1));
  const Var w = tape.variable(random_tensor({vocab, hidden}, dtype, 2, 0.3f));
  w.slot->set_buffer(random_tensor({vocab, hidden}, gradients, 4, 0.01f));
  if (accumulate) w.slot->target(w.value);
  const CrossEntropy::Vars out = cross_entropy(tape, ops, h, w, targets, {0.1f});
  tape.backward(out.loss);
  return {out.loss.value, out.nll, h.slot->grad(), w.slot->grad()};
}

TEST_P(OnednnCrossEntropy, AgreesWithEager) {
  for (const auto [tokens, hidden, vocab] : {std::array<int64_t, 3>{1, 8, 5}, {4, 33, 700}, {60, 24, 3000}})
    for (const bool accumulate : {false, true})
      expect_faithful("onednn", GetParam(), [&](const std::string& provider) {
        return results(provider, GetParam(), targets_with_gaps(tokens, vocab), hidden, vocab, accumulate);
      });
}

TEST_P(OnednnCrossEntropy, CutsLongBatchesIntoChunks) {
  expect_faithful("onednn", GetParam(), [&](const std::string& provider) {
    return results(provider, GetParam(), targets_with_gaps(150, 300000), 4, 300000, true);
  });
  expect_faithful("onednn", DType::kBF16, [&](const std::string& provider) {
    return results(provider, GetParam(), targets_with_gaps(150, 300000), 4, 300000, true, DType::kBF16);
  });
}

TEST_P(OnednnCrossEntropy, NothingToLearn) {
  const Tensor hidden = random_tensor({2, 4}, GetParam(), 1), weight = random_tensor({5, 4}, GetParam(), 2);
  const Tensor targets = Tensor::from(std::vector<int32_t>{CrossEntropy::kIgnore, CrossEntropy::kIgnore});
  const GradTarget target{random_tensor({5, 4}, DType::kF32, 3)};
  const auto out =
      kernels<CrossEntropy>().find("onednn")->forward({hidden, weight, targets, 1}, true, target);
  EXPECT_EQ(out.loss.item(), 0);
  EXPECT_TRUE(same_bits(out.dhidden, Tensor::zeros({2, 4}, GetParam())));
  EXPECT_TRUE(same_bits(target.buffer, Tensor::zeros({5, 4}, DType::kF32)));
}

TEST_P(OnednnCrossEntropy, LossAloneIsTheSame) {
  const Tensor hidden = random_tensor({9, 16}, GetParam(), 1),
               weight = random_tensor({600, 16}, GetParam(), 2);
  const CrossEntropy op{hidden, weight, targets_with_gaps(9, 600), 0.5f};
  const auto alone = kernels<CrossEntropy>().find("onednn")->forward(op, false, {});
  const auto both = kernels<CrossEntropy>().find("onednn")->forward(op, true, {});
  EXPECT_TRUE(same_bits(alone.loss, both.loss));
  EXPECT_TRUE(same_bits(alone.nll, both.nll));
  EXPECT_FALSE(alone.dhidden.defined());
}

}  // namespace
}  // namespace temper::backends
