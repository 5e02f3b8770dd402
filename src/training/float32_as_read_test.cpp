// Vectors of the gated delta rule that files hold in float32 stay so in a bfloat16 model: loaded, trained,
// decoded with and saved.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "base/files.h"
#include "checkpoints/hf_folder.h"
#include "tests/support/op_testing.h"
#include "tests/support/packed_rows.h"
#include "tests/support/tiny_model.h"
#include "training/trainer.h"

namespace temper::training {
namespace {

constexpr const char* kHybrids[] = {"qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"};
const std::vector<std::vector<std::string>> kWide{
    {"a_log", "dt_bias", "norm.weight"}, {"a_log", "norm.weight"}, {"dt_bias"}, {}};
const std::map<std::string, std::string> kFiles{
    {"a_log", "A_log"}, {"dt_bias", "dt_bias"}, {"norm.weight", "norm.weight"}};

const models::BuildOptions kNarrow{.dtype = DType::kBF16};

bool is_wide(const std::vector<std::string>& wide, const std::string& name) {
  return std::find(wide.begin(), wide.end(), name) != wide.end();
}
std::string parameter(const std::string& name) { return "layers.0.delta." + name; }

// A bfloat16 folder where some vectors are float32, with values that bfloat16 does not have.
void write_folder(const std::string& to, const char* type, const std::vector<std::string>& wide) {
  const auto model = tiny_model({.type = type, .dtype = DType::kBF16});
  auto& parameters = model->decoder.parameters();
  for (const std::string& name : wide) {
    const Tensor before = parameters.value(parameter(name)).to(DType::kF32).clone();
    parameters.keep_in(parameter(name), DType::kF32);
    const Tensor value = parameters.value(parameter(name));
    for (int64_t i = 0; i < value.numel(); ++i)
      value.data<float>()[i] = before.data<float>()[i] + 0.001f * static_cast<float>(i + 1);
  }
  models::save_model(*model, to, "");
}

std::vector<float> in_file(const std::string& folder, const std::string& name, DType expected) {
  const auto files = checkpoints::ModelFolder::open(folder);
  const Tensor tensor = files.tensor("model.layers.0.linear_attn." + kFiles.at(name));
  EXPECT_EQ(tensor.dtype(), expected) << name;
  const auto values = tensor.to(DType::kF32).values<float>();
  return {values.begin(), values.end()};
}
std::vector<float> in_model(const models::Model& model, const std::string& name, DType expected) {
  const Tensor value = model.decoder.parameters().value(parameter(name));
  EXPECT_EQ(value.dtype(), expected) << name;
  const auto values = value.to(DType::kF32).values<float>();
  return {values.begin(), values.end()};
}

Tensor logits_of(const models::Model& model, std::optional<int64_t> pieces) {
  const std::vector<int32_t> tokens{1, 9, 4, 30, 2, 17, 8};
  Tape tape(false);
  const auto part = [&](int64_t first, int64_t count, layers::SequenceState* state) {
    layers::Decoder::Options options;
    options.state = state;
    const std::vector<int32_t> own(tokens.begin() + first, tokens.begin() + first + count);
    const std::vector<int32_t> lengths{static_cast<int32_t>(count)};
    const layers::DecoderInput input = layers::make_input(own, lengths);
    for (int32_t& position : input.positions.values<int32_t>()) position += static_cast<int32_t>(first);
    return model.decoder.forward(tape, input, options).value.to(DType::kF32).clone();
  };
  const auto all = static_cast<int64_t>(tokens.size());
  if (!pieces) return part(0, all, nullptr).narrow(0, all - 1, 1);
  layers::SequenceState state = model.decoder.make_state(16);
  Tensor last;
  for (int64_t first = 0; first < all; first += *pieces)
    last = part(first, std::min(*pieces, all - first), &state);
  return last.narrow(0, last.dim(0) - 1, 1);
}

op_testing::Doubles numbers(const Tensor& tensor) {
  const auto values = tensor.values<float>();
  return {values.begin(), values.end()};
}

TEST(Float32AsRead, SurvivesLoadingTrainingAndSaving) {
  const TemporaryDirectory folder;
  for (const char* type : kHybrids)
    for (const auto& wide : kWide) {
      SCOPED_TRACE(fmt::format("{}, {} of {} in float32", type, wide.size(), kFiles.size()));
      write_folder(folder / "read", type, wide);
      for (const bool eager : {true, false}) {
        models::BuildOptions options = kNarrow;
        if (eager) options.ops = ops::all_eager();
        const auto model = models::load_model(folder / "read", options);
        const auto dtype = [&](const std::string& name) {
          return is_wide(wide, name) ? DType::kF32 : DType::kBF16;
        };
        std::map<std::string, std::vector<float>> before;
        for (const auto& [name, file] : kFiles) {
          before[name] = in_model(*model, name, dtype(name));
          EXPECT_EQ(before[name], in_file(folder / "read", name, dtype(name))) << name;
        }
        EXPECT_EQ(model->decoder.parameters().value(parameter("conv.weight")).dtype(), DType::kBF16);
        optimizers::AdamW optimizer(model->decoder.parameters(), model->decoder.ops(), {});
        Trainer trainer(model->decoder, optimizer, {});
        for (int step = 0; step < 3; ++step) {
          const StepResult result = trainer.step({test_row(1, {9, 12})}, 1e-4);
          EXPECT_TRUE(std::isfinite(result.loss) && result.grad_norm > 0);
        }
        models::save_model(*model, folder / "written", folder / "read");
        for (const auto& [name, file] : kFiles) {
          const auto after = in_model(*model, name, dtype(name));
          if (is_wide(wide, name)) {
            EXPECT_NE(after, before[name]) << name << " is trained";
          }
          EXPECT_EQ(in_file(folder / "written", name, dtype(name)), after) << name;
        }
      }
    }
}

// One step of all tokens, pieces of them and single tokens read the same float32 values.
TEST(Float32AsRead, PassesAgree) {
  const TemporaryDirectory folder;
  for (const char* type : kHybrids) {
    SCOPED_TRACE(type);
    write_folder(folder / "read", type, kWide.front());
    const auto model = models::load_model(folder / "read", kNarrow);
    const Tensor whole = logits_of(*model, {});
    for (const int64_t pieces : {1, 3, 7})
      EXPECT_TRUE(op_testing::close(numbers(logits_of(*model, pieces)), numbers(whole), 2e-2)) << pieces;
    // What bfloat16 would make of them is seen in the logits: the test could fail.
    write_folder(folder / "narrow", type, {});
    EXPECT_NE(numbers(logits_of(*models::load_model(folder / "narrow", kNarrow), {})), numbers(whole));
  }
}

}  // namespace
}  // namespace temper::training
