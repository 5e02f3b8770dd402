// Parameters that are float32 in a bfloat16 model: what a folder holds of them comes back bit by bit, and
// what training changes below the precision of bfloat16 is kept, in weights, in states and in files.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/files.h"
#include "checkpoints/hf_folder.h"
#include "models/adapter.h"
#include "optimizers/adamw.h"
#include "tests/support/packed_rows.h"
#include "tests/support/tiny_model.h"
#include "training/trainer.h"

namespace temper::training {
namespace {

constexpr const char* kHybrids[] = {"qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"};
const std::string kRoom = "layers.0.delta.", kFileRoom = "model.layers.0.linear_attn.";
const std::vector<std::pair<std::string, std::string>> kKept{
    {"a_log", "A_log"}, {"dt_bias", "dt_bias"}, {"norm.weight", "norm.weight"}};

struct KeptDTypes : testing::Test {
  // A folder in bfloat16 whose A_log and gated norm are float32, and dt_bias bfloat16, as published files
  // are.
  void write_folder(const char* type) {
    const auto model = tiny_model({.type = type, .dtype = DType::kBF16});
    auto& parameters = model->decoder.parameters();
    for (const auto& [name, file] : kKept) {
      const auto values = parameters.at(kRoom + name).value.values<float>();
      for (size_t i = 0; i < values.size(); ++i) values[i] = 0.1f + 1e-5f * static_cast<float>(i);
    }
    parameters.set_read_dtypes({{kRoom + "dt_bias", DType::kBF16}});
    save_model(*model, folder / "model", "");
  }
  std::unique_ptr<models::Model> load(const char* name, DType dtype = DType::kBF16) const {
    return models::load_model(folder / name, {.dtype = dtype, .ops = ops::all_eager()});
  }
  checkpoints::ModelFolder open(const char* name) const {
    return checkpoints::ModelFolder::open(folder / name);
  }

  TemporaryDirectory folder;
};

void expect_same_files(const checkpoints::ModelFolder& found, const checkpoints::ModelFolder& expected) {
  EXPECT_EQ(found.names(), expected.names());
  for (const std::string& name : expected.names()) {
    SCOPED_TRACE(name);
    const Tensor a = found.tensor(name), b = expected.tensor(name);
    ASSERT_EQ(a.dtype(), b.dtype());
    EXPECT_EQ(std::memcmp(a.raw(), b.raw(), static_cast<size_t>(b.bytes())), 0);
  }
}

TEST_F(KeptDTypes, AFolderThatIsLoadedAndSavedIsTheSameBitByBit) {
  for (const char* type : kHybrids) {
    SCOPED_TRACE(type);
    write_folder(type);
    const auto read = open("model");
    EXPECT_EQ(read.tensor(kFileRoom + "A_log").dtype(), DType::kF32);
    EXPECT_EQ(read.tensor(kFileRoom + "norm.weight").dtype(), DType::kF32);
    EXPECT_EQ(read.tensor(kFileRoom + "dt_bias").dtype(), DType::kBF16);
    EXPECT_EQ(read.tensor(kFileRoom + "out_proj.weight").dtype(), DType::kBF16);
    const auto model = load("model");
    for (const auto& [name, file] : kKept)
      EXPECT_EQ(model->decoder.parameters().at(kRoom + name).value.dtype(), DType::kF32) << name;
    EXPECT_EQ(model->decoder.parameters().at(kRoom + "conv.weight").value.dtype(), DType::kBF16);
    save_model(*model, folder / "saved", "");
    expect_same_files(open("saved"), read);
    // A model in float32 is written in float32 as a whole.
    save_model(*load("model", DType::kF32), folder / "wide", "");
    for (const std::string& name : read.names()) EXPECT_EQ(open("wide").tensor(name).dtype(), DType::kF32);
  }
}

std::vector<float> floats(const Tensor& tensor) {
  const Tensor wide = tensor.to(DType::kF32);
  const auto values = wide.values<float>();
  return {values.begin(), values.end()};
}

struct Training {
  explicit Training(models::Model& model)
      : optimizer(model.decoder.parameters(), model.decoder.ops(), {}),
        trainer(model.decoder, optimizer, {}) {}
  void step() {
    EXPECT_TRUE(std::isfinite(trainer.step({test_row(1, {9}), test_row(2, {4, 7})}, 1e-5).loss));
  }
  optimizers::AdamW optimizer;
  Trainer trainer;
};

// Each step moves a value by 1e-5 at most, of which bfloat16 near 0.1 sees nothing.
TEST_F(KeptDTypes, StepsBelowBfloat16ReachTheModelItsStateAndItsFiles) {
  for (const char* type : kHybrids) {
    SCOPED_TRACE(type);
    write_folder(type);
    const auto model = load("model"), resumed = load("model");
    const auto& parameters = model->decoder.parameters();
    Training training(*model), again(*resumed);
    training.step();
    for (const auto& [name, file] : kKept) {
      const auto before = floats(open("model").tensor(kFileRoom + file)),
                 after = floats(parameters.at(kRoom + name).value);
      for (size_t i = 0; i < before.size(); ++i) {
        EXPECT_NE(after[i], before[i]) << name;
        EXPECT_NEAR(after[i], before[i], 1.1e-5f) << name;
      }
    }
    const std::vector<PlacedTensor> from = training.optimizer.state(), to = again.optimizer.state();
    ASSERT_EQ(from.size(), to.size());
    for (size_t i = 0; i < from.size(); ++i) {
      EXPECT_EQ(from[i].name, to[i].name);
      to[i].own.copy_from(from[i].own);
    }
    again.optimizer.restored(1);
    training.step();
    again.step();
    for (size_t i = 0; i < parameters.size(); ++i)
      EXPECT_EQ(floats(parameters[i].value), floats(resumed->decoder.parameters()[i].value))
          << parameters.spec(i).name;
    save_model(*model, folder / "trained", "");
    EXPECT_EQ(floats(open("trained").tensor(kFileRoom + "A_log")),
              floats(parameters.at(kRoom + "a_log").value));
    EXPECT_EQ(open("trained").tensor(kFileRoom + "dt_bias").dtype(), DType::kBF16);
  }
}

TEST_F(KeptDTypes, AnAdaptersCopyIsFloat32AndAMergedFolderHasTheBasesDTypes) {
  for (const char* type : kHybrids) {
    SCOPED_TRACE(type);
    write_folder(type);
    const auto model = load("model");
    const auto adapter =
        models::new_adapter(*model, {.rank = 2, .modules_to_save = {"linear_attn.norm"}}, 1, "");
    const Tensor copy = adapter->parameters().at("saved." + kFileRoom + "norm.weight").value;
    ASSERT_EQ(copy.dtype(), DType::kF32);
    copy.values<float>()[0] = 0.123456789f;
    models::save_adapter(*adapter, folder / "adapter", folder / "model");
    const auto loaded = models::load_adapter(*model, folder / "adapter");
    EXPECT_EQ(floats(loaded->parameters().at("saved." + kFileRoom + "norm.weight").value), floats(copy));
    models::merge_adapter(folder / "adapter", folder / "model", folder / "merged", int64_t{1} << 30);
    const auto base = open("model"), merged = open("merged");
    for (const std::string& name : base.names())
      EXPECT_EQ(merged.tensor(name).dtype(), base.tensor(name).dtype()) << name;
    EXPECT_EQ(floats(merged.tensor(kFileRoom + "norm.weight")), floats(copy));
    EXPECT_EQ(Json::parse_file(folder / "merged/config.json").find("dtype") == nullptr,
              Json::parse_file(folder / "model/config.json").find("dtype") == nullptr);
  }
}

}  // namespace
}  // namespace temper::training
