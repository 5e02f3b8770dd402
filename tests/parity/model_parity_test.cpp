// Every model case of the goldens folder against values computed by transformers: TEMPER_GOLDENS names the
// folder (default: tests/goldens). A case is a model folder with a golden.safetensors beside its weights.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/files.h"
#include "checkpoints/safetensors.h"
#include "models/model.h"
#include "ops/adamw/adamw.h"
#include "ops/global_norm/global_norm.h"
#include "tests/parity/relative_error.h"

namespace temper {
namespace {

using checkpoints::SafetensorsFile;

std::string goldens_folder() {
  const char* folder = std::getenv("TEMPER_GOLDENS");
  return folder != nullptr ? folder : TEMPER_SOURCE_DIR "/tests/goldens";
}

struct Case {
  std::string name, kernels, device;
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name << " with " << c.kernels << " kernels on " << c.device;
}

std::vector<Case> find_cases() {
  std::vector<Case> cases;
  for (const std::string& name : list_directory(goldens_folder()))
    if (exists(join_path(join_path(goldens_folder(), name), "golden.safetensors")))
      for (const char* device : {"cpu", "cuda"})
        for (const char* kernels : {"eager", "fast"}) cases.push_back({name, kernels, device});
  return cases;
}

std::vector<int32_t> ints(const Tensor& tensor) {
  const auto values = tensor.values<int64_t>();
  return {values.begin(), values.end()};
}

class ModelParity : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    folder_ = join_path(goldens_folder(), GetParam().name);
    const Json config = Json::parse_file(join_path(folder_, "config.json"));
    const std::string type = config.at("model_type").as_string();
    const auto built = models::supported_model_types();
    if (std::find(built.begin(), built.end(), type) == built.end())
      GTEST_SKIP() << "model_type '" << type << "' is not built yet";
    golden_.emplace(join_path(folder_, "golden.safetensors"));
    try {
      facts_ = detect_hardware(GetParam().device);
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }

  std::unique_ptr<models::Model> load(DType dtype) const {
    models::BuildOptions options;
    options.dtype = dtype;
    options.facts = facts_;
    if (GetParam().kernels == "eager") options.ops = ops::OpsConfig{.fallback = "eager"};
    return models::load_model(folder_, options);
  }

  Tensor golden(const std::string& name) const { return golden_->tensor(name); }

  layers::DecoderInput input() const {
    const Tensor ids = golden("input_ids");
    const std::vector<int32_t> lengths(static_cast<size_t>(ids.dim(0)), static_cast<int32_t>(ids.dim(1)));
    return layers::make_input(ints(ids), lengths);
  }

  // The labels moved one to the left: what each position predicts.
  Tensor targets(int64_t* count) const {
    const Tensor labels = golden("labels");
    const std::vector<int32_t> given = ints(labels);
    std::vector<int32_t> shifted(given.size(), ops::CrossEntropy::kIgnore);
    const auto width = static_cast<size_t>(labels.dim(1));
    *count = 0;
    for (size_t i = 0; i + 1 < given.size(); ++i)
      if ((i + 1) % width != 0 && given[i + 1] != ops::CrossEntropy::kIgnore) {
        shifted[i] = given[i + 1];
        ++*count;
      }
    return Tensor::from(shifted);
  }

  // Forward and backward of the golden batch; gradients stay in the parameters.
  double run_step(models::Model& model, bool checkpoint_layers = false) const {
    int64_t count = 0;
    const Tensor wanted = targets(&count);
    // Before the forward pass: the fused loss adds the head's gradient while it runs.
    model.decoder.parameters().reset_gradients();
    Tape tape;
    layers::Decoder::Options options;
    options.checkpoint_layers = checkpoint_layers;
    const Var hidden = model.decoder.forward(tape, input(), options);
    const Var loss = model.decoder.loss(tape, hidden, wanted, {1.f / static_cast<float>(count)}).loss;
    tape.backward(loss);
    return loss.value.item();
  }

  void expect_gradients(const models::Model& model) const {
    const auto& parameters = model.decoder.parameters();
    for (size_t i = 0; i < parameters.size(); ++i) {
      int64_t row = 0;
      for (const WeightSource& source : parameters.spec(i).sources) {
        const Tensor found = parameters[i].grad->grad().narrow(0, row, source.rows);
        EXPECT_LE(relative_error(found, golden("grad." + source.name)), 2e-5) << source.name;
        row += source.rows;
      }
    }
  }

  std::string folder_;
  std::optional<SafetensorsFile> golden_;
  HardwareFacts facts_;
};

TEST_P(ModelParity, HiddenStatesAndLogits) {
  const auto model = load(DType::kF32);
  Tape tape(false);
  std::vector<Tensor> hidden;
  layers::Decoder::Options options;
  options.hidden_states = &hidden;
  const Var last = model->decoder.forward(tape, input(), options);
  for (size_t i = 0; i < hidden.size(); ++i)
    EXPECT_LE(relative_error(hidden[i], golden("hidden." + std::to_string(i))), 2e-5) << "hidden." << i;
  EXPECT_LE(relative_error(model->decoder.logits(tape, last).value, golden("logits")), 2e-5);
}

TEST_P(ModelParity, LossAndGradients) {
  const auto model = load(DType::kF32);
  model->decoder.parameters().enable_gradients(DType::kF32);
  const double expected = golden("loss").item();
  EXPECT_NEAR(run_step(*model), expected, 1e-6 * expected);
  expect_gradients(*model);
}

TEST_P(ModelParity, CheckpointedLayersGiveTheSameGradients) {
  const auto model = load(DType::kF32);
  model->decoder.parameters().enable_gradients(DType::kF32);
  const double expected = golden("loss").item();
  EXPECT_NEAR(run_step(*model, true), expected, 1e-6 * expected);
  expect_gradients(*model);
}

TEST_P(ModelParity, BFloat16LossIsClose) {
  const auto model = load(DType::kBF16);
  model->decoder.parameters().enable_gradients(DType::kF32);
  const double expected = golden("loss").item();
  EXPECT_NEAR(run_step(*model), expected, 0.01 * expected);
}

TEST_P(ModelParity, FiveAdamWSteps) {
  const auto model = load(DType::kF32);
  auto& parameters = model->decoder.parameters();
  parameters.enable_gradients(DType::kF32);
  parameters.allocate_gradients();
  ops::AdamW op;
  op.lr = 1e-3f;
  op.beta1 = 0.9f;
  op.beta2 = 0.95f;
  op.max_grad_norm = 1;
  std::vector<Tensor> grads;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Shape& shape = parameters[i].value.shape();
    grads.push_back(parameters[i].grad->grad());
    const auto moment = [&] {
      return Tensor::zeros(shape, DType::kF32, MemoryTag::kOptimizer, parameters.device());
    };
    op.slots.push_back({parameters[i].value, {}, grads.back(), moment(), moment(), 0.1f});
  }
  const Tensor losses = golden("adamw.losses"), norms = golden("adamw.grad_norms");
  for (int64_t step = 0; step < losses.numel(); ++step) {
    const double loss = run_step(*model);
    op.grad_norm = ops::global_norm(model->decoder.ops(), {grads, parameters.device()});
    const double norm = op.grad_norm.item();
    const double expected_loss = losses.data<float>()[step], expected_norm = norms.data<float>()[step];
    EXPECT_NEAR(loss, expected_loss, 1e-4 * expected_loss) << "step " << step;
    EXPECT_NEAR(norm, expected_norm, 1e-4 * expected_norm) << "step " << step;
    op.step = step + 1;
    ops::adamw(model->decoder.ops(), op);
  }
}

TEST_P(ModelParity, GreedyWithTheCache) {
  const auto model = load(DType::kF32);
  const std::vector<int32_t> expected = ints(golden("greedy"));
  const std::vector<int32_t> prompt_rows = ints(golden("input_ids"));
  size_t prompt = 0;
  while (prompt < expected.size() && prompt < prompt_rows.size() && expected[prompt] == prompt_rows[prompt])
    ++prompt;
  ASSERT_GT(prompt, 0u);
  const auto& config = model->decoder.config();
  layers::KvCache cache(config.num_layers, static_cast<int64_t>(expected.size()), config.num_kv_heads,
                        config.head_dim, DType::kF32, model->decoder.device());
  layers::Decoder::Options options;
  options.cache = &cache;
  std::vector<int32_t> ids(expected.begin(), expected.begin() + static_cast<std::ptrdiff_t>(prompt));
  std::vector<int32_t> next = ids;
  while (ids.size() < expected.size()) {
    Tape tape(false);
    layers::DecoderInput step = layers::make_input(next, std::vector{static_cast<int32_t>(next.size())});
    for (int32_t& position : step.positions.values<int32_t>())
      position += static_cast<int32_t>(cache.length());
    const Tensor hidden = model->decoder.forward(tape, step, options).value;
    const Tensor logits =
        model->decoder.logits(tape, tape.constant(hidden.narrow(0, hidden.dim(0) - 1, 1))).value;
    const Tensor here = logits.on({});
    const auto row = here.values<float>();
    next = {static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin())};
    ids.push_back(next[0]);
  }
  EXPECT_EQ(ids, expected);
}

TEST_P(ModelParity, PackedDocumentsEqualSeparateRuns) {
  const auto model = load(DType::kF32);
  const std::vector<int32_t> ids = ints(golden("packed.input_ids")),
                             positions = ints(golden("packed.position_ids"));
  std::vector<int32_t> lengths;
  for (const int32_t position : positions) {
    if (position == 0) lengths.push_back(0);
    ++lengths.back();
  }
  Tape tape(false);
  const auto logits_of = [&](std::span<const int32_t> tokens, std::span<const int32_t> documents) {
    return model->decoder.logits(tape, model->decoder.forward(tape, layers::make_input(tokens, documents)))
        .value;
  };
  const Tensor packed = logits_of(ids, lengths);
  EXPECT_LE(relative_error(packed, golden("packed.logits")), 2e-5);
  int64_t start = 0;
  for (const int32_t length : lengths) {
    const auto part = std::span(ids).subspan(static_cast<size_t>(start), static_cast<size_t>(length));
    EXPECT_LE(relative_error(packed.narrow(0, start, length), logits_of(part, std::vector{length})), 2e-6);
    start += length;
  }
}

INSTANTIATE_TEST_SUITE_P(Goldens, ModelParity, testing::ValuesIn(find_cases()), [](const auto& info) {
  std::string name = info.param.name + "_" + info.param.kernels;
  if (info.param.device != "cpu") name += "_" + info.param.device;
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  return name;
});
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ModelParity);

}  // namespace
}  // namespace temper
