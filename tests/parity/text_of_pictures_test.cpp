// The text of models that also read pictures, whose folders are as they are published: results and three
// updates of transformers (tools/oracles/take_text_goldens.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "base/parts/registry.h"
#include "layers/glue.h"
#include "rollout/engine.h"
#include "tests/parity/picture_case.h"
#include "tests/support/relative_error.h"
#include "training/trainer.h"

namespace temper::parity {
namespace {

std::vector<std::string> picture_cases() { return list_directory(picture_folder("")); }

class TextOfPictures : public PictureCase {
 protected:
  TextOfPictures() : PictureCase(join_path(picture_folder(std::get<0>(GetParam())), "golden.safetensors")) {}

  size_t num_rows() const {
    size_t count = 0;
    while (has(row(count, "input_ids"))) ++count;
    return count;
  }
  // Of the rows that were trained, targets moved one to the left.
  std::vector<data::PackedRow> trained_rows() const {
    std::vector<data::PackedRow> rows;
    for (size_t i = 0; i < static_cast<size_t>(train().at("rows").as_int()); ++i) {
      std::vector<int32_t> targets = of_row(i, "labels");
      std::rotate(targets.begin(), targets.begin() + 1, targets.end());
      targets.back() = ops::CrossEntropy::kIgnore;
      const std::vector<int32_t> ids = of_row(i, "input_ids");
      rows.push_back({ids, targets, {std::ssize(ids)}});
    }
    return rows;
  }
  Json train() const {
    for (const auto& [key, text] : golden_.metadata())
      if (key == "train") return Json::parse(text, "golden.safetensors");
    return {};
  }
};

TEST_P(TextOfPictures, Logits) {
  const auto model = load();
  for (size_t i = 0; i < num_rows(); ++i) {
    const std::vector<int32_t> ids = of_row(i, "input_ids");
    Tape tape(false);
    const Var hidden =
        model->decoder.forward(tape, layers::make_input(ids, std::vector{static_cast<int32_t>(ids.size())}));
    const Tensor all = model->decoder.logits(tape, hidden).value, expected = golden_.tensor(row(i, "logits"));
    if (!has(row(i, "logits_at"))) {
      EXPECT_LE(relative_norm_error(all, expected), 2e-5) << "row " << i;
      continue;
    }
    const std::vector<int32_t> places = of_row(i, "logits_at");
    for (size_t j = 0; j < places.size(); ++j)
      EXPECT_LE(
          relative_norm_error(all.narrow(0, places[j], 1), expected.narrow(0, static_cast<int64_t>(j), 1)),
          5e-5)
          << "row " << i << ", token " << places[j];
  }
}

TEST_P(TextOfPictures, Greedy) {
  const auto model = load();
  std::vector<int32_t> ids = ints(golden_.tensor("prompt"));
  const std::vector<int32_t> expected = ints(golden_.tensor("greedy"));
  rollout::Engine engine(model->decoder, rollout::options_of_conversation());
  rollout::Request request;
  request.prompt = ids;
  request.max_new_tokens = std::ssize(expected) - std::ssize(ids);
  engine.add(std::move(request));
  while (engine.step()) {
  }
  const rollout::Completion answer = std::move(engine.take_finished().front());
  ids.insert(ids.end(), answer.ids.begin(), answer.ids.end());
  EXPECT_EQ(ids, expected);
}

TEST_P(TextOfPictures, LossGradientsAndThreeUpdates) {
  const Json recorded = train();
  if (recorded.is_null()) GTEST_SKIP() << "transformers trained this folder with pictures only";
  const auto model = load();
  const WeightTable& table = model->decoder.parameters().table();
  const auto number = [&](const char* key) { return recorded.at(key).as_double(); };
  const optimizers::AdamWOptions adamw{.beta1 = recorded.at("betas").as_array()[0].as_double(),
                                       .beta2 = recorded.at("betas").as_array()[1].as_double(),
                                       .eps = number("eps"),
                                       .weight_decay = number("weight_decay"),
                                       .decay_all = recorded.at("decay_all").as_bool()};
  optimizers::AdamW optimizer(model->decoder.parameters(), model->decoder.ops(), adamw);
  training::TrainerOptions options;
  options.max_grad_norm = number("max_grad_norm");
  options.routers.balance_factor = model->decoder.config().balance_factor;
  training::Trainer trainer(model->decoder, optimizer, options);
  // transformers' float32 gradients of a gated delta rule are off by more.
  const bool delta = std::get<0>(GetParam()) == "qwen3_5";
  const Json::Array &losses = recorded.at("losses").as_array(), &norms = recorded.at("grad_norms").as_array();
  for (size_t step = 0; step < losses.size(); ++step) {
    const training::StepResult found = trainer.step(trained_rows(), number("lr"));
    const double loss = losses[step].as_double(), norm = norms[step].as_double();
    EXPECT_NEAR(found.loss, loss, (delta ? 5e-5 : 5e-6) * loss) << "step " << step;
    EXPECT_NEAR(found.grad_norm, norm, (delta ? 2e-3 : 2e-5) * norm) << "step " << step;
    if (step > 0) continue;
    size_t compared = 0;
    for (size_t i = 0; i < table.specs().size(); ++i) {
      const WeightSpec& spec = table.specs()[i];
      int64_t first = 0;
      for (const WeightSource& source : spec.sources) {
        const std::string name = "grad." + table.name_in_files(source.name);
        const Tensor gradient = model->decoder.parameters()[i].grad->grad().narrow(0, first, source.rows);
        first += source.rows;
        if (!has(name)) continue;
        ++compared;
        EXPECT_LE(relative_error(gradient, golden_.tensor(name)), 1e-4) << name;
      }
    }
    EXPECT_GE(compared, has("grad." + table.name_in_files(table.specs()[0].sources[0].name)) ? 10u : 0u);
  }
}

// What is not the text's comes out byte for byte, and the text under the names that it had.
TEST_P(TextOfPictures, SavesTheTowerAsItWas) {
  const auto model = models::load_model(folder(), {});
  const TemporaryDirectory out;
  models::save_model(*model, out / "saved", folder());
  const checkpoints::SafetensorsFile before(join_path(folder(), "model.safetensors")),
      after(out / "saved/model.safetensors");
  ASSERT_EQ(after.entries().size(), before.entries().size());
  for (const checkpoints::TensorEntry& entry : before.entries()) {
    const checkpoints::TensorEntry* saved = after.find(entry.name);
    ASSERT_NE(saved, nullptr) << entry.name;
    EXPECT_EQ(saved->dtype, entry.dtype) << entry.name;
    EXPECT_EQ(saved->shape, entry.shape) << entry.name;
    const Tensor expected = before.tensor(entry.name), found = after.tensor(entry.name);
    ASSERT_EQ(found.bytes(), expected.bytes()) << entry.name;
    EXPECT_EQ(std::memcmp(found.raw(), expected.raw(), static_cast<size_t>(expected.bytes())), 0)
        << entry.name;
  }
}

std::string case_name(const testing::TestParamInfo<std::tuple<std::string, std::string>>& info) {
  return std::get<0>(info.param) + "_" + std::get<1>(info.param);
}

INSTANTIATE_TEST_SUITE_P(Goldens, TextOfPictures,
                         testing::Combine(testing::ValuesIn(picture_cases()),
                                          testing::Values("eager", "fast")),
                         case_name);

// A case is a folder of the family's name; one that was trained on text, NAME_trained, may be next to it.
TEST(TextOfPicturesCases, EveryFamilyThatReadsPicturesHasOne) {
  std::set<std::string> families, updated;
  for (const std::string& name : picture_cases()) {
    const std::string family =
        Json::parse_file(join_path(picture_folder(name), "config.json")).at("model_type").as_string();
    EXPECT_TRUE(name == family || name == family + "_trained") << name;
    families.insert(family);
    const checkpoints::SafetensorsFile golden(join_path(picture_folder(name), "golden.safetensors"));
    for (const auto& [key, text] : golden.metadata())
      if (key == "train") updated.insert(family);
  }
  for (const auto& entry : registry<models::Family>().entries()) {
    if (!entry.value.text) continue;
    EXPECT_TRUE(families.contains(entry.name)) << entry.name;
    EXPECT_TRUE(updated.contains(entry.name)) << entry.name;
  }
}

}  // namespace
}  // namespace temper::parity
