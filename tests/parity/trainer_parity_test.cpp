// Five steps of the trainer and its optimizer, against the same by torch.optim.AdamW and clip_grad_norm_.
#include <gtest/gtest.h>

#include "tests/parity/golden_case.h"
#include "tests/support/relative_error.h"
#include "training/trainer.h"

namespace temper::parity {
namespace {

// The golden batch's rows one by one, all at once, or as the documents of one packed row.
enum class Cut { kMicroBatches, kWhole, kPacked };

struct Settings {
  double lr = 0, max_grad_norm = 0;
  optimizers::AdamWOptions adamw;
};

class TrainerParity : public GoldenCase {
 protected:
  // Goldens without metadata have the settings that follow, and decay everything.
  Settings settings() const {
    Settings found{1e-3, 1, {.beta1 = 0.9, .beta2 = 0.95, .weight_decay = 0.1, .decay_all = true}};
    for (const auto& [key, text] : golden_->metadata()) {
      if (key != "adamw") continue;
      const Json json = Json::parse(text, "golden.safetensors");
      const auto number = [&](const char* name) { return json.at(name).as_double(); };
      found = {number("lr"),
               number("max_grad_norm"),
               {.beta1 = number("beta1"),
                .beta2 = number("beta2"),
                .eps = number("eps"),
                .weight_decay = number("weight_decay"),
                .decay_all = json.at("decay_all").as_bool()}};
    }
    return found;
  }

  std::vector<data::PackedRow> rows(Cut cut) const {
    const std::vector<int32_t> ids = ints(golden("input_ids"));
    int64_t count = 0;
    const std::vector<int32_t> wanted = targets(&count);
    const int64_t width = golden("input_ids").dim(1), total = static_cast<int64_t>(ids.size());
    if (cut == Cut::kPacked)
      return {{ids, wanted, std::vector<int64_t>(static_cast<size_t>(total / width), width)}};
    std::vector<data::PackedRow> found;
    for (int64_t first = 0; first < total; first += width)
      found.push_back({{ids.begin() + first, ids.begin() + first + width},
                       {wanted.begin() + first, wanted.begin() + first + width},
                       {width}});
    return found;
  }

  // Of the step that was just done; the optimizer clips on its way and leaves them as they were.
  void expect_gradients_of(int64_t step, const models::Model& model) const {
    const std::string prefix = step == 0 ? "grad." : fmt::format("adamw.grad.{}.", step);
    const std::string& first = model.decoder.parameters().spec(0).sources.front().name;
    if (has_golden(prefix + first)) expect_gradients(model, 2e-5, prefix);
  }

  // By how much they moved.
  void expect_weights(const models::Model& model, const models::Model& before) const {
    const auto& parameters = model.decoder.parameters();
    const std::string& first = parameters.spec(0).sources.front().name;
    if (!has_golden("adamw.weight." + first)) return;
    std::vector<Tensor> starts;
    for_each_weight(
        before, [&](size_t i) { return before.decoder.parameters()[i].value.on({}); },
        [&](const std::string&, const Tensor& start) { starts.push_back(start); });
    size_t next = 0;
    for_each_weight(
        model, [&](size_t i) { return parameters[i].value.on({}); },
        [&](const std::string& name, const Tensor& end) {
          const Tensor& start = starts[next++];
          const Tensor moved = difference(golden("adamw.weight." + name), start);
          EXPECT_LE(relative_norm_error(difference(end, start), moved), 2e-4) << name;
        });
  }

  static Tensor difference(const Tensor& a, const Tensor& b) {
    const Tensor found = a.clone();
    auto values = found.values<float>();
    const auto subtracted = b.values<float>();
    for (size_t i = 0; i < values.size(); ++i) values[i] -= subtracted[i];
    return found;
  }

  void expect_five_steps(Cut cut) const {
    const auto model = load(DType::kF32), before = load(DType::kF32);
    const Settings given = settings();
    optimizers::AdamW optimizer(model->decoder.parameters(), model->decoder.ops(), given.adamw);
    training::TrainerOptions options;
    options.max_grad_norm = given.max_grad_norm;
    if (cut == Cut::kMicroBatches) options.micro_batch_tokens = golden("input_ids").dim(1);
    options.routers.balance_factor = model->decoder.config().balance_factor;
    options.routers.global_balance = cut == Cut::kMicroBatches;  // as all rows at once
    training::Trainer trainer(model->decoder, optimizer, options);
    const Tensor losses = golden("adamw.losses"), norms = golden("adamw.grad_norms");
    ASSERT_GE(losses.numel(), 5);
    for (int64_t step = 0; step < losses.numel(); ++step) {
      const training::StepResult found = trainer.step(rows(cut), given.lr);
      const double loss = losses.data<float>()[step], norm = norms.data<float>()[step];
      EXPECT_NEAR(found.loss, loss, 1e-4 * loss) << "step " << step;
      EXPECT_NEAR(found.grad_norm, norm, 1e-4 * norm) << "step " << step;
      expect_gradients_of(step, *model);
    }
    expect_weights(*model, *before);
  }
};

TEST_P(TrainerParity, FiveAdamWSteps) { expect_five_steps(Cut::kWhole); }
TEST_P(TrainerParity, FiveAdamWStepsOfMicroBatches) { expect_five_steps(Cut::kMicroBatches); }
TEST_P(TrainerParity, FiveAdamWStepsOfAPackedRow) { expect_five_steps(Cut::kPacked); }

INSTANTIATE_TEST_SUITE_P(Goldens, TrainerParity, testing::ValuesIn(find_cases()), name_of);

}  // namespace
}  // namespace temper::parity
