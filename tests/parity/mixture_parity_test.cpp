// Mixtures of experts on packed rows, compared with transformers and PEFT on each document alone: losses, the
// load balancing loss of all rows together, gradients, and three updates (goldens/mixtures).
#include <gtest/gtest.h>

#include "base/files.h"
#include "checkpoints/file_forms.h"
#include "checkpoints/files/safetensors.h"
#include "models/adapter.h"
#include "tests/parity/golden_case.h"
#include "tests/support/relative_error.h"
#include "training/adapter_trainer.h"

namespace temper::parity {
namespace {

struct MixtureCase {
  std::string name, kernels;
  bool micro_batches = false;  // one for each row, with loads of the whole update
};
void PrintTo(const MixtureCase& c, std::ostream* out) {
  *out << c.name << " with " << c.kernels << " kernels";
}

std::vector<MixtureCase> mixture_cases() {
  std::vector<MixtureCase> cases;
  for (const char* name : {"qwen3_moe_packed", "qwen3_moe_unnormed_packed"})
    for (const char* kernels : {"eager", "fast"})
      for (const bool micro_batches : {false, true}) cases.push_back({name, kernels, micro_batches});
  return cases;
}

class MixtureParity : public testing::TestWithParam<MixtureCase> {
 protected:
  explicit MixtureParity(std::string name) : folder_(TEMPER_SOURCE_DIR "/tests/goldens/mixtures/" + name) {}
  MixtureParity() : MixtureParity(GetParam().name) {}

  void SetUp() override {
    golden_.emplace(join_path(folder_, "golden.safetensors"));
    json_ = Json::parse_file(join_path(folder_, "golden.json"));
  }
  std::unique_ptr<models::Model> load(const std::string& folder, const std::string& kernels) const {
    models::BuildOptions options;
    options.dtype = DType::kF32;
    if (kernels == "eager") options.ops = ops::OpsConfig{.fallback = "eager"};
    return models::load_model(folder, options);
  }

  // What each token predicts: the next one of its document.
  std::vector<data::PackedRow> rows() const {
    std::vector<data::PackedRow> all;
    for (int i = 0; golden_->find(fmt::format("row.{}.input_ids", i)) != nullptr; ++i) {
      const auto of = [&](const char* what) {
        return ints(golden_->tensor(fmt::format("row.{}.{}", i, what)));
      };
      data::PackedRow row{of("input_ids"), {}, {}};
      const std::vector<int32_t> labels = of("labels");
      size_t at = 0;
      for (const int32_t length : of("lengths")) {
        row.document_lengths.push_back(length);
        for (int32_t t = 0; t < length; ++t, ++at)
          row.targets.push_back(t + 1 < length ? labels[at + 1] : data::kIgnore);
      }
      all.push_back(std::move(row));
    }
    return all;
  }

  double number(const char* key) const { return json_.at("train").at(key).as_double(); }
  optimizers::AdamWOptions adamw() const {
    const Json::Array& betas = json_.at("train").at("betas").as_array();
    return {.beta1 = betas[0].as_double(),
            .beta2 = betas[1].as_double(),
            .eps = number("eps"),
            .weight_decay = number("weight_decay")};
  }
  training::TrainerOptions options(bool micro_batches) const {
    training::TrainerOptions found;
    found.max_grad_norm = number("max_grad_norm");
    found.micro_batch_tokens = micro_batches ? 1 : 0;
    found.routers.balance_factor = json_.at("aux_loss_coef").as_double();
    found.routers.global_balance = micro_batches;
    return found;
  }

  void expect_step(size_t step, const training::StepResult& found) const {
    const auto golden = [&](const char* key) { return json_.at(key).as_array()[step].as_double(); };
    EXPECT_NEAR(found.loss, golden("losses"), 5e-6 * golden("losses")) << step;
    const double balance = found.balance_loss / json_.at("aux_loss_coef").as_double();
    EXPECT_NEAR(balance, golden("aux_losses"), 1e-5 * balance) << step;
    EXPECT_NEAR(found.grad_norm, golden("grad_norms"), 2e-5 * golden("grad_norms")) << step;
  }
  void expect_gradients(const layers::ParameterStore& parameters) const {
    for (size_t i = 0; i < parameters.size(); ++i) {
      const WeightSpec& spec = parameters.spec(i);
      const Tensor grad = parameters[i].grad->grad();
      int64_t row = 0;
      for (const WeightSource& source : WeightTable::sources_in_files(spec, true)) {
        Tensor own = checkpoints::to_file(spec, grad.narrow(0, row, source.rows));
        if (source.name == spec.stacked) own = own.reshape(spec.stacked_shape);
        EXPECT_LE(relative_error(own, golden_->tensor("grad." + source.name)), 2e-5) << source.name;
        row += source.rows;
      }
    }
  }

  std::string folder_;
  std::optional<checkpoints::SafetensorsFile> golden_;
  Json json_;
};

TEST_P(MixtureParity, PackedRowsAreDocumentsAlone) {
  const auto model = load(folder_, GetParam().kernels);
  for (int i = 0; i < 2; ++i) {
    const data::PackedRow row = rows()[static_cast<size_t>(i)];
    const std::vector<int32_t> lengths(row.document_lengths.begin(), row.document_lengths.end());
    Tape tape(false);
    const Var hidden = model->decoder.forward(tape, layers::make_input(row.ids, lengths));
    const Tensor expected = golden_->tensor(fmt::format("row.{}.logits", i));
    EXPECT_LE(relative_error(model->decoder.logits(tape, hidden).value, expected), 2e-5) << i;
  }
}

TEST_P(MixtureParity, ThreeUpdates) {
  const auto model = load(folder_, GetParam().kernels);
  optimizers::AdamW optimizer(model->decoder.parameters(), model->decoder.ops(), adamw());
  training::Trainer trainer(model->decoder, optimizer, options(GetParam().micro_batches));
  for (size_t step = 0; step < 3; ++step) {
    expect_step(step, trainer.step(rows(), number("lr")));
    if (step == 0) expect_gradients(model->decoder.parameters());
  }
}

INSTANTIATE_TEST_SUITE_P(Goldens, MixtureParity, testing::ValuesIn(mixture_cases()),
                         [](const testing::TestParamInfo<MixtureCase>& info) {
                           return info.param.name + "_" + info.param.kernels +
                                  (info.param.micro_batches ? "_micro_batches" : "");
                         });

// PEFT's adapters of a frozen mixture: of its attention, which the routers' loss reaches through the hidden
// states, and of its experts' stacked tensors besides.
class AdaptedMixture : public MixtureParity {
 protected:
  AdaptedMixture() : MixtureParity(GetParam().name) {}
};

TEST_P(AdaptedMixture, ThreeUpdates) {
  const auto model = load(join_path(folder_, "base"), GetParam().kernels);
  const auto adapter = models::load_adapter(*model, folder_);
  optimizers::AdamW optimizer(adapter->parameters(), model->decoder.ops(), adamw());
  training::AdapterTrainer trainer(model->decoder, options(false));
  const std::vector<data::PackedRow> all = rows();
  for (size_t step = 0; step < 3; ++step) {
    std::vector<training::AdapterShare> shares(1);
    shares[0].adapter = adapter.get();
    shares[0].optimizer = &optimizer;
    shares[0].rows = &all;
    shares[0].lr = number("lr");
    expect_step(step, trainer.begin(shares)[0].wait());
    if (step == 0) expect_gradients(adapter->parameters());
  }
}

// Written and read again, and merged into files of either layout.
TEST_P(AdaptedMixture, FilesAndMergedModelsComputeTheSame) {
  const auto model = load(join_path(folder_, "base"), GetParam().kernels);
  const auto adapter = models::load_adapter(*model, folder_);
  const TemporaryDirectory written;
  models::save_adapter(*adapter, written / "adapter", "");
  const checkpoints::SafetensorsFile ours(written / "adapter/adapter_model.safetensors"),
      theirs(folder_ + "/adapter_model.safetensors");
  for (const auto& entry : theirs.entries())
    EXPECT_EQ(relative_error(ours.tensor(entry.name), theirs.tensor(entry.name)), 0) << entry.name;
  EXPECT_EQ(ours.entries().size(), theirs.entries().size());
  EXPECT_EQ(models::load_adapter(*model, written / "adapter")->config(), adapter->config());
  models::merge_adapter(folder_, join_path(folder_, "base"), written / "merged", int64_t{1} << 30);
  const auto merged = load(written / "merged", GetParam().kernels);
  for (int i = 0; i < 2; ++i) {
    const data::PackedRow row = rows()[static_cast<size_t>(i)];
    const std::vector<int32_t> lengths(row.document_lengths.begin(), row.document_lengths.end());
    const Tensor expected = golden_->tensor(fmt::format("row.{}.logits", i));
    Tape tape(false);
    const auto input = layers::make_input(row.ids, lengths);
    const auto logits = [&](const models::Model& of) {
      return of.decoder.logits(tape, of.decoder.forward(tape, input)).value;
    };
    EXPECT_LE(relative_error(logits(*merged), expected), 2e-5) << i;
    EXPECT_GE(relative_error(logits(*model), expected), 1e-3) << "the adapter changes nothing";
  }
}

INSTANTIATE_TEST_SUITE_P(Goldens, AdaptedMixture,
                         testing::Values(MixtureCase{"qwen3_moe_lora_attention", "eager"},
                                         MixtureCase{"qwen3_moe_lora_attention", "fast"},
                                         MixtureCase{"qwen3_moe_lora_experts", "eager"},
                                         MixtureCase{"qwen3_moe_lora_experts", "fast"}),
                         [](const testing::TestParamInfo<MixtureCase>& info) {
                           return info.param.name + "_" + info.param.kernels;
                         });

}  // namespace
}  // namespace temper::parity
