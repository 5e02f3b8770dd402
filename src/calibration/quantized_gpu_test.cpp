// Quantization-aware training on a GPU, compared with the CPU's.
#include <cmath>

#include "calibration/calibration.h"
#include "quant/number_format.h"
#include "tests/support/gpu.h"
#include "tests/support/op_testing.h"
#include "tests/support/packed_rows.h"
#include "tests/support/tiny_model.h"
#include "training/trainer.h"

namespace temper::calibration {
namespace {

using op_testing::values_of;
using quantizers::QuantizerKind;
using quantizers::QuantizerRule;
using quantizers::Sharing;

const std::vector<data::PackedRow> kGpuRows{test_row(1, {9}), test_row(2, {4, 12}), test_row(3, {20})};

// Weights of linears and experts in one format, and inputs of linears, and of experts or not, in another.
struct Formats {
  const char* type;
  QuantizerKind weights, inputs;
  bool of_experts = false;
};
const std::vector<Formats> kFormats{
    {"qwen3", {"fp8"}, {"fp8"}},
    {"qwen3", {"int8", Sharing::kRow}, {"int8", Sharing::kRow, 0, true}},
    {"qwen3", {"int4", Sharing::kBlock, 16, false, "fp8"}, {"fp8"}},
    {"qwen3_moe", {"nvfp4"}, {"fp8", Sharing::kTensor, 0, true}},
    {"qwen3_moe", {"int4", Sharing::kBlock, 16}, {}},
    {"qwen3_moe", {"fp8", Sharing::kTile, 16}, {"int8"}},
    {"qwen3_moe", {"fp8"}, {"fp8"}, true},
    {"qwen3_moe", {"nvfp4"}, {"nvfp4"}, true},
    {"qwen3_moe", {"int4", Sharing::kBlock, 16, false, "fp8"}, {"fp8"}, true},
    {"qwen3_moe", {"int8", Sharing::kRow}, {"int8", Sharing::kRow, 0, true}, true},
    // With zero points.
    {"qwen3", {"int8", Sharing::kRow, 0, false, "", false}, {"int8", Sharing::kRow, 0, true, "", false}},
    {"qwen3",
     {"int4", Sharing::kBlock, 16, false, "", false},
     {"int8", Sharing::kTensor, 0, false, "", false}},
    {"qwen3_moe",
     {"int4", Sharing::kBlock, 16, false, "", false},
     {"int8", Sharing::kTensor, 0, false, "", false},
     true},
};

struct GpuRun {
  GpuRun(const Formats& formats, const HardwareFacts& facts, training::CudaGraph graph) {
    TinyModel tiny{.type = formats.type, .ops = {}, .facts = facts};
    tiny.quantize.rules = {{"layers.*", formats.weights, formats.inputs}};
    if (std::string_view(formats.type) == "qwen3_moe" && !formats.of_experts)
      tiny.quantize.rules.push_back({"layers.*.mlp.experts.*", formats.weights, QuantizerKind{}});
    model = tiny_model(tiny);
    optimizer = std::make_unique<optimizers::AdamW>(model->decoder.parameters(), model->decoder.ops(),
                                                    optimizers::AdamWOptions{});
    trainer = std::make_unique<training::Trainer>(model->decoder, *optimizer,
                                                  training::TrainerOptions{.cuda_graph = graph});
    calibrate(model->decoder, kGpuRows);
  }
  std::unique_ptr<models::Model> model;
  std::unique_ptr<optimizers::AdamW> optimizer;
  std::unique_ptr<training::Trainer> trainer;
};

// The amax of weights has the CPU's bits; that of inputs and losses are computed in another order.
TEST(QuantizedTraining, AGpuCalibratesAndLearnsAsTheCpuDoes) {
  if (const std::string why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  for (const Formats& formats : kFormats) {
    SCOPED_TRACE(fmt::format("{} {}", formats.type, formats.weights.format));
    GpuRun here(formats, detect_cpu(), training::CudaGraph::kOff),
        there(formats, detect_hardware("cuda"), training::CudaGraph::kOff);
    const auto& own = here.model->decoder.quantizers().all();
    const auto& found = there.model->decoder.quantizers().all();
    ASSERT_EQ(found.size(), own.size());
    for (size_t i = 0; i < own.size(); ++i) {
      if (!own[i].planned.keeps_amax()) continue;
      const auto compare = [&](const Tensor& wanted, const Tensor& ends) {
        const auto expected = values_of(wanted), amax = values_of(ends);
        for (size_t j = 0; j < amax.size(); ++j)
          EXPECT_NEAR(amax[j], expected[j], own[i].planned.of_input ? 1e-3 * std::abs(expected[j]) : 0)
              << own[i].planned.name;
      };
      compare(own[i].amax, found[i].amax);
      if (own[i].low.defined()) compare(own[i].low, found[i].low);
    }
    for (int step = 0; step < 3; ++step) {
      const double wanted = here.trainer->step(kGpuRows, 1e-3).loss,
                   loss = there.trainer->step(kGpuRows, 1e-3).loss;
      // An input near the middle of two codes may get the other one.
      EXPECT_NEAR(loss, wanted, 0.02 * wanted) << step;
    }
  }
}

// Nothing in a pass waits for the CPU: steps that are replayed from a graph are those that were launched.
TEST(QuantizedTraining, AGpusGraphsReplayTheSameSteps) {
  if (const std::string why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  const HardwareFacts gpu = detect_hardware("cuda");
  for (const Formats& formats : kFormats) {
    if (std::string_view(formats.type) == "qwen3_moe") continue;
    SCOPED_TRACE(formats.weights.format);
    GpuRun plain(formats, gpu, training::CudaGraph::kOff), captured(formats, gpu, training::CudaGraph::kOn);
    for (int step = 0; step < 20; ++step)
      EXPECT_EQ(captured.trainer->step(kGpuRows, 1e-3).loss, plain.trainer->step(kGpuRows, 1e-3).loss)
          << step;
    EXPECT_GT(captured.trainer->graphs().replays, 10);
  }
}

// Of a mixture, too: amax of experts' inputs are found where they are, and no expert is a launch of its own
// that depends on the rows it gets. (Formats with zero points take ops whose rows the host counts.)
TEST(QuantizedTraining, AGpusGraphsReplayTheSameStepsOfAMixture) {
  if (const std::string why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  const HardwareFacts gpu = detect_hardware("cuda");
  for (const Formats& formats : kFormats) {
    if (std::string_view(formats.type) != "qwen3_moe" || !formats.weights.symmetric) continue;
    SCOPED_TRACE(fmt::format("{} {}", formats.weights.format, formats.of_experts));
    GpuRun plain(formats, gpu, training::CudaGraph::kOff), captured(formats, gpu, training::CudaGraph::kOn);
    for (int step = 0; step < 20; ++step)
      EXPECT_EQ(captured.trainer->step(kGpuRows, 1e-3).loss, plain.trainer->step(kGpuRows, 1e-3).loss)
          << step;
    EXPECT_GT(captured.trainer->graphs().replays, 10);
  }
}

}  // namespace
}  // namespace temper::calibration
