// Every adapter of goldens/adapters against values computed by PEFT (tools/oracles/make_adapter_goldens.py).
#include <gtest/gtest.h>

#include <cstring>

#include "base/files.h"
#include "checkpoints/adapter_folder.h"
#include "checkpoints/merge.h"
#include "models/adapter.h"
#include "tests/support/relative_error.h"

namespace temper {
namespace {

using checkpoints::SafetensorsFile;

const char* const kGoldens = TEMPER_SOURCE_DIR "/tests/goldens";

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && a.dtype() == b.dtype() &&
         std::memcmp(a.contiguous().raw(), b.contiguous().raw(), static_cast<size_t>(a.bytes())) == 0;
}

struct AdapterCase {
  std::string name, kernels, device;
};
void PrintTo(const AdapterCase& c, std::ostream* out) {
  *out << c.name << " with " << c.kernels << " kernels on " << c.device;
}

std::vector<AdapterCase> find_adapters() {
  std::vector<AdapterCase> cases;
  for (const std::string& name : list_directory(join_path(kGoldens, "adapters")))
    for (const char* device : {"cpu", "cuda"})
      for (const char* kernels : {"eager", "fast"}) cases.push_back({name, kernels, device});
  return cases;
}

class AdapterParity : public testing::TestWithParam<AdapterCase> {
 protected:
  void SetUp() override {
    folder_ = join_path(join_path(kGoldens, "adapters"), GetParam().name);
    base_ = join_path(kGoldens, checkpoints::read_adapter_config(folder_).base_model);
    golden_.emplace(join_path(folder_, "golden.safetensors"));
    models::BuildOptions options;
    try {
      options.facts = detect_hardware(GetParam().device);
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
    options.dtype = DType::kF32;
    if (GetParam().kernels == "eager") options.ops = ops::OpsConfig{.fallback = "eager"};
    model_ = models::load_model(base_, options);
    adapter_ = models::load_adapter(*model_, folder_);
  }

  Tensor golden(const std::string& name) const { return golden_->tensor(name); }

  layers::DecoderInput input() const {
    const auto ids = golden("input_ids").values<int64_t>();
    const auto width = static_cast<int32_t>(golden("input_ids").dim(1));
    return layers::make_input(std::vector<int32_t>(ids.begin(), ids.end()), std::vector{width, width});
  }

  layers::AdapterRows rows() const { return {adapter_.get(), golden("input_ids").numel()}; }

  Var forward(Tape& tape) const {
    layers::Decoder::Options options;
    options.adapters = {rows()};
    return model_->decoder.forward(tape, input(), options);
  }

  Tensor logits(const layers::Adapter* adapter) const {
    Tape tape(false);
    layers::Decoder::Options options;
    if (adapter != nullptr) options.adapters = {{adapter, rows().rows}};
    const Tensor values =
        model_->decoder.logits(tape, model_->decoder.forward(tape, input(), options), adapter).value;
    return values.on({}).reshape(golden("logits").shape());
  }

  std::string folder_, base_;
  std::optional<SafetensorsFile> golden_;
  std::unique_ptr<models::Model> model_;
  std::unique_ptr<layers::Adapter> adapter_;
};

TEST_P(AdapterParity, Logits) {
  EXPECT_LE(relative_error(logits(adapter_.get()), golden("logits")), 2e-5);
  // Switched off it is the model alone.
  EXPECT_GT(relative_error(logits(nullptr), golden("logits")), 1e-3);
}

TEST_P(AdapterParity, LossAndGradients) {
  const Tensor labels = golden("labels");
  const auto given = labels.values<int64_t>();
  const auto width = static_cast<size_t>(labels.dim(1));
  std::vector<int32_t> targets(given.size(), ops::CrossEntropy::kIgnore);
  float count = 0;
  for (size_t i = 0; i + 1 < given.size(); ++i)
    if ((i + 1) % width != 0 && given[i + 1] != ops::CrossEntropy::kIgnore) {
      targets[i] = static_cast<int32_t>(given[i + 1]);
      ++count;
    }
  layers::ParameterStore& parameters = adapter_->parameters();
  parameters.enable_gradients(DType::kF32);
  Tape tape;
  const Var loss = model_->decoder.loss(tape, forward(tape), Tensor::from(targets), {1 / count}, rows()).loss;
  tape.backward(loss);
  EXPECT_LE(relative_error(loss.value, golden("loss")), 2e-6);
  for (size_t i = 0; i < parameters.size(); ++i) {
    int64_t row = 0;
    for (const WeightSource& source : parameters.spec(i).sources) {
      Tensor found = parameters[i].grad->grad().on({}).narrow(0, row, source.rows);
      if (parameters.spec(i).transposed) found = found.transpose(0, 1);
      EXPECT_LE(relative_error(found, golden("grad." + source.name)), 2e-5) << source.name;
      row += source.rows;
    }
  }
  for (size_t i = 0; i < model_->decoder.parameters().size(); ++i)
    EXPECT_EQ(model_->decoder.parameters()[i].grad, nullptr) << "the base is frozen";
}

TEST_P(AdapterParity, FilesAreWrittenAsTheyWereRead) {
  const TemporaryDirectory folder;
  const std::string copy = folder / "adapter";
  models::save_adapter(*adapter_, copy, "somewhere");
  const SafetensorsFile before(join_path(folder_, "adapter_model.safetensors")),
      after(join_path(copy, "adapter_model.safetensors"));
  for (const auto& entry : after.entries()) {
    ASSERT_NE(before.find(entry.name), nullptr) << entry.name;
    EXPECT_TRUE(same_bits(after.tensor(entry.name), before.tensor(entry.name))) << entry.name;
  }
  // Except copies of the model's own weights.
  for (const auto& entry : before.entries())
    EXPECT_TRUE(after.find(entry.name) != nullptr || entry.name.ends_with(".base_layer.weight"))
        << entry.name;
  const auto read = checkpoints::read_adapter_config(copy), first = checkpoints::read_adapter_config(folder_);
  EXPECT_EQ(read.lora, first.lora);
  EXPECT_EQ(read.base_model, "somewhere");
}

// Merging needs no model: once is enough. Also into a model in many files.
TEST_P(AdapterParity, MergesBitByBit) {
  if (GetParam().kernels != "fast" || GetParam().device != "cpu") GTEST_SKIP() << "the same as on the CPU";
  if (model_->config.at("dtype").as_string() != "float32") GTEST_SKIP() << "recorded of models in float32";
  const TemporaryDirectory folder;
  const WeightTable& table = model_->decoder.parameters().table();
  const std::string one = folder / "one", sharded = folder / "sharded", again = folder / "again";
  checkpoints::merge_adapter(folder_, base_, model_->config, table, one, 1 << 30);
  const SafetensorsFile merged(join_path(one, "model.safetensors"));
  int compared = 0;
  for (const auto& entry : golden_->entries()) {
    if (!entry.name.starts_with("merged.")) continue;
    EXPECT_TRUE(same_bits(merged.tensor(entry.name.substr(7)), golden(entry.name))) << entry.name;
    ++compared;
  }
  EXPECT_GT(compared, 0);
  checkpoints::SaveOptions options;
  options.max_shard_bytes = 100'000;
  const auto& parameters = model_->decoder.parameters();
  checkpoints::save_model(
      sharded, table, [&](const WeightSpec& spec) { return parameters.at(spec.name).value; }, model_->config,
      options);
  checkpoints::merge_adapter(folder_, sharded, model_->config, table, again, 100'000);
  const auto files = checkpoints::ModelFolder::open(again);
  EXPECT_TRUE(exists(join_path(again, "model.safetensors.index.json")));
  for (const std::string& name : files.names())
    EXPECT_TRUE(same_bits(files.tensor(name), merged.tensor(name))) << name;
}

TEST(Goldens, EveryAdapterIsThere) {
  const std::vector<std::string> expected{
      "deepseek_v3_attention", "gemma3_norms",    "granite_head",     "llama_all_linear", "llama_head",
      "olmo2_norms",           "phi3_all_linear", "qwen2_all_biases", "qwen2_bias",       "qwen3_whole"};
  EXPECT_EQ(list_directory(join_path(kGoldens, "adapters")), expected);
}

INSTANTIATE_TEST_SUITE_P(Goldens, AdapterParity, testing::ValuesIn(find_adapters()));

}  // namespace
}  // namespace temper
