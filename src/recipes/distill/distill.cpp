#include "base/error.h"
#include "base/log.h"
#include "recipes/distill/distill_keys.h"
#include "recipes/recipe.h"
#include "recipes/second_model.h"
#include "training/distillation.h"

namespace temper::recipes {
namespace {

void check(const RunConfig& config) {
  const DistillKeys& keys = distill_keys(config);
  if (keys.teacher.empty() && config.adapters.empty() && !config.quantize.to_options().any())
    fail(
        "[distill.teacher] is missing: give the folder of a model to learn from; without it the teacher is "
        "the model itself, which differs from what is trained only with adapters or quantize");
  if (keys.teacher.empty() && !config.adapters.empty() && config.quantize.to_options().any())
    fail(
        "[distill.teacher] is missing: below adapters quantize rounds the weights for good, so that the "
        "model without its adapter is no better than its student; write distill.teacher: {}",
        config.model.path);
  if (keys.teacher_share != DistillKeys().teacher_share &&
      keys.divergence != losses::Divergence::kJensenShannon)
    fail("[distill.teacher_share] is read by jensen_shannon only; leave it out, or set distill.divergence");
  if (config.train.z_loss > 0)
    fail("[train.z_loss] is {}, which recipe distill does not have; leave it out", config.train.z_loss);
  check_second_model(config, "distill.teacher", keys.teacher, "a teacher",
                     "give a model of the same family of tokenizers");
}

std::optional<std::string> second_model(const RunConfig& config) {
  const std::string& folder = distill_keys(config).teacher;
  return folder.empty() ? std::nullopt : std::optional(folder);
}

std::string other_model(const RunConfig& config) { return distill_keys(config).teacher; }

// With a teacher that lives as long as it is learnt from.
class DistillFrom : public training::Distill {
 public:
  DistillFrom(std::shared_ptr<const models::Model> teacher, const layers::Decoder& model,
              const RunConfig& config)
      : Distill(model, teacher->decoder, distill_keys(config).to_loss(), config.train.micro_batch_tokens),
        teacher_model_(std::move(teacher)) {}

 private:
  std::shared_ptr<const models::Model> teacher_model_;
};

Recipe::Objective rehearsed(const RunConfig& config, const layers::Decoder& model,
                            const layers::Decoder* second) {
  return std::make_shared<training::Distill>(model, second != nullptr ? *second : model,
                                             distill_keys(config).to_loss(), config.train.micro_batch_tokens);
}

Recipe::Objective objective(const ObjectiveInputs& inputs) {
  const std::string& folder = distill_keys(inputs.config).teacher;
  const layers::Decoder& model = inputs.setup.model->decoder;
  if (folder.empty()) {
    log_info(inputs.config.adapters.empty() ? "teacher: the model without the rounding of quantize"
                                            : "teacher: the model without its adapter");
    return rehearsed(inputs.config, model, nullptr);
  }
  log_info(fmt::format("teacher: {}, a second model in memory", folder));
  return std::make_shared<DistillFrom>(inputs.setup.other_model(folder), model, inputs.config);
}

}  // namespace

void register_distill() {
  registry<Recipe>().add(
      "distill",
      {.learns_from = "a teacher's distributions at examples",
       .keys = OwnKeys::of<DistillKeys>("How a teacher's distributions are learnt, with recipe distill."),
       .loss_key = "divergence",
       .answers = {{"kd", "write recipe: distill, and distill.teacher"},
                   {"gkd",
                    "write recipe: distill; it learns from the answers of data.train, not the model's own"},
                   {"qad", "write recipe: distill, and quantize"}},
       .foreign_names = {{"distill.teacher", {"teacher_model", "teacher_model_name_or_path"}},
                         {"distill.temperature", {"kd_temperature", "distill_temperature"}}},
       .check = check,
       .second_model = second_model,
       .other_model = other_model,
       .objective = objective,
       .rehearsed = rehearsed});
}

}  // namespace temper::recipes
