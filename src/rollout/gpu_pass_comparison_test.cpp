// Rollouts and training on a GPU with batch-invariant kernels; skipped where there is none.
#include <gtest/gtest.h>

#include "base/random.h"
#include "models/adapter.h"
#include "rollout/batch_invariant.h"
#include "rollout/pass_comparison.h"
#include "tests/support/gpu.h"
#include "tests/support/tiny_model.h"

namespace temper::rollout {
namespace {

std::vector<std::vector<int32_t>> gpu_prompts() {
  std::vector<std::vector<int32_t>> prompts(3);
  for (int32_t i = 0; i < 700; ++i) prompts[0].push_back(i * 7 % 48);
  for (int32_t i = 0; i < 17; ++i) prompts[1].push_back((3 + i * 5) % 48);
  prompts[2] = {11};
  return prompts;
}

class GpuPassComparison : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
    const HardwareFacts facts = detect_hardware("cuda");
    if (facts.compute_capability != 90)
      GTEST_SKIP() << "batch-invariant kernels of GPUs are for compute capability 9.0";
    model_ = tiny_model(
        {.type = GetParam(),
         .dtype = DType::kBF16,
         .ops = {.written = batch_invariant_fields("cuda", DType::kBF16)},
         .facts = facts,
         .sizes = {{"linear_value_head_dim", 8}, {"max_position_embeddings", Json(int64_t{1024})}}});
  }
  const layers::Decoder& model() const { return model_->decoder; }

  // Whose updates are not nothing.
  std::unique_ptr<layers::Adapter> adapter(LoraConfig config, uint64_t seed) const {
    auto adapter = models::new_adapter(*model_, config, seed, "");
    layers::ParameterStore& parameters = adapter->parameters();
    for (size_t i = 0; i < parameters.table().specs().size(); ++i) {
      const Tensor& value = parameters[i].value;
      const Random random(seed, RandomPurpose::kInitialization, i);
      Tensor numbers = Tensor::zeros(value.shape(), DType::kF32);
      uint64_t element = 0;
      for (float& each : numbers.values<float>())
        each = 0.8f * static_cast<float>(random.uniform(element++) - 0.5);
      value.copy_from(numbers.to(value.dtype()).on(value.device()));
    }
    return adapter;
  }

  void expect_none(const std::vector<GivenText>& texts, std::initializer_list<int64_t> batches) const {
    const PassComparison comparison(model(), texts);
    for (const int64_t batch : batches)
      for (const bool warm : {false, true}) {
        const PassDifference found = comparison.compare(batch, warm);
        EXPECT_TRUE(found.none()) << batch << (warm ? " warm: " : ": ") << verdict_of(found, batch);
        EXPECT_EQ(found.different_tokens, 0);
        EXPECT_TRUE(found.not_compared.empty()) << found.not_compared.front();
      }
  }

 private:
  std::unique_ptr<models::Model> model_;
};

TEST_P(GpuPassComparison, IsExactlyZeroWithBatchInvariantKernels) {
  EXPECT_TRUE(is_batch_invariant(model()));
  expect_none(likeliest_answers(model(), gpu_prompts(), 12), {1, 3, 17, 64, 129, 1024});
}

TEST_P(GpuPassComparison, IsExactlyZeroWithAdapters) {
  LoraConfig all{.rank = 8, .alpha = 16}, some{.rank = 3, .alpha = 6, .targets = {.names = {"q_proj"}}};
  const auto first = adapter(all, 3), second = adapter(some, 4);
  std::vector<GivenText> texts;
  for (const layers::Adapter* const each :
       {first.get(), static_cast<layers::Adapter*>(nullptr), second.get()})
    for (GivenText& text : likeliest_answers(model(), gpu_prompts(), 6, each))
      texts.push_back(std::move(text));
  expect_none(texts, {1, 4, 20, 140});
}

INSTANTIATE_TEST_SUITE_P(Models, GpuPassComparison,
                         testing::Values("qwen3", "gemma3_text", "qwen3_moe", "qwen3_next", "qwen3_5_text"));

}  // namespace
}  // namespace temper::rollout
