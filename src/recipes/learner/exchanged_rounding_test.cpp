// Rollouts of a model with quantizers in the process that trains it and in another one.
#include <gtest/gtest.h>

#include <future>

#include "base/files.h"
#include "exchange/receiver.h"
#include "exchange/weight_sources.h"
#include "rollout/engine.h"
#include "tests/support/quantized_run.h"
#include "training/rounded_weights.h"

namespace temper::recipes {
namespace {

using calibration::kQuantizedRows;
using quantizers::CalibrationMethod;
using quantizers::QuantizeOptions;
using quantizers::QuantizerKind;
using quantizers::Sharing;

struct Answer {
  std::vector<int32_t> ids;
  std::vector<float> log_probs;
  bool operator==(const Answer&) const = default;
};

std::vector<Answer> answers_of(const layers::Decoder& model) {
  rollout::Engine engine(model, {.cache_tokens = 512, .max_running = 3});
  for (int32_t i = 0; i < 5; ++i) {
    rollout::Request request;
    for (int32_t at = 0; at < 3 + 5 * i; ++at) request.prompt.push_back((at * 7 + i * 11) % 48);
    request.sampling = {.temperature = 1, .seed = static_cast<uint64_t>(i)};
    request.max_new_tokens = 12;
    engine.add(std::move(request));
  }
  std::map<int64_t, Answer> all;
  while (engine.step())
    for (const rollout::Completion& each : engine.take_finished())
      all[each.id] = {each.ids, each.columns.rollout_log_probs};
  std::vector<Answer> answers;
  for (auto& [id, each] : all) answers.push_back(std::move(each));
  return answers;
}

std::vector<std::vector<int32_t>> tokens_of(const std::vector<Answer>& answers) {
  std::vector<std::vector<int32_t>> all;
  for (const Answer& each : answers) all.push_back(each.ids);
  return all;
}

// The model with the weights that passes compute with, and the scales of what else they round.
void send(const std::string& socket, layers::Decoder& model) {
  exchange::Sender sender(socket, model.parameters().table(), {.quantizers = &model.quantizers()});
  sender.begin(1);
  exchange::send_owned(sender, training::rounded_parameters(model), 0);
  for (const quantizers::NamedScales& each : exchange::scales_of(&model.quantizers()))
    sender.add(each.name, each.values.contiguous());
  sender.finish();
}

QuantizeOptions rules(const QuantizerKind& weights, const QuantizerKind& inputs) {
  return {"", {{"layers.*", weights, inputs}}};
}

std::vector<std::pair<const char*, QuantizeOptions>> all_cases() {
  const QuantizerKind fp8{"fp8"}, int8_tokens{"int8", Sharing::kRow, 0, true, "", false};
  QuantizeOptions everywhere = rules(fp8, fp8);
  everywhere.rules.push_back({.modules = "layers.*.attention.qkv", .outputs = fp8, .kv_cache = fp8});
  return {{"qwen3", {"FP8_DEFAULT"}},
          {"qwen3", {"FP8_PER_CHANNEL_PER_TOKEN"}},
          {"qwen3", {"INT8_SMOOTHQUANT", {}, true, CalibrationMethod::kSmoothQuant}},
          {"qwen3", {"NVFP4_DEFAULT"}},
          {"qwen3", {"NVFP4_AWQ_LITE", {}, true, CalibrationMethod::kAwqLite}},
          {"qwen3", rules({"int4", Sharing::kBlock, 16, false, "fp8"}, fp8)},
          {"qwen3", rules({"int8", Sharing::kRow}, {"int8", Sharing::kTensor, 0, false, "", false})},
          {"qwen3", rules({"int8", Sharing::kRow}, int8_tokens)},
          {"qwen3", everywhere},
          {"qwen3_moe", {"FP8_DEFAULT"}},
          {"qwen3_moe", {"NVFP4_DEFAULT"}},
          {"qwen3_moe", {"INT8_SMOOTHQUANT", {}, true, CalibrationMethod::kSmoothQuant}},
          {"qwen3_next", rules(fp8, fp8)}};
}

TEST(ExchangedRounding, RolloutsHaveTheSameBitsInBothProcesses) {
  for (const char* provider : {"eager", ""})
    for (const auto& [type, options] : all_cases()) {
      SCOPED_TRACE(fmt::format("{} {} '{}'", type, options.preset, provider));
      TinyModel tiny{.type = type, .ops = {.fallback = provider}};
      const std::vector<std::vector<int32_t>> plain = tokens_of(answers_of(tiny_model(tiny)->decoder));
      tiny.quantize = options;
      const auto model = tiny_model(tiny);
      tiny.deviation = 0.31;
      calibration::QuantizedRun trained(tiny);
      calibration::calibrate(trained.model->decoder, kQuantizedRows, {.method = options.calibration});
      trained.trainer.step(kQuantizedRows, 0.02);  // amax are not the weights' any more

      const TemporaryDirectory files;
      const std::string socket = files / "weights.sock";
      exchange::Receiver receiver(socket, model->decoder.parameters(),
                                  {.quantizers = &model->decoder.quantizers()});
      EXPECT_EQ(tokens_of(answers_of(model->decoder)), plain);  // the model that was loaded rounds nothing
      auto sending = std::async(std::launch::async, [&] { send(socket, trained.model->decoder); });
      const auto sent = [&] {
        return sending.wait_for(std::chrono::milliseconds(1)) == std::future_status::ready;
      };
      while (!sent()) receiver.take_new(sent);
      sending.get();
      const std::vector<Answer> answers = answers_of(trained.model->decoder);
      EXPECT_TRUE(answers_of(model->decoder) == answers);
      const quantizers::QuantizersOff off(model->decoder.quantizers());  // rounding makes a difference here
      EXPECT_FALSE(answers_of(model->decoder) == answers);
    }
}

}  // namespace
}  // namespace temper::recipes
