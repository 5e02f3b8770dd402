#include "base/error.h"
#include "base/log.h"
#include "recipes/distill/distill_keys.h"
#include "recipes/distill/stored_logits.h"
#include "recipes/parts/second_model.h"
#include "recipes/setup/recipe_inputs.h"
#include "training/objectives/distillation.h"

namespace temper::recipes {
namespace {

void check_stored(const RunConfig& config) {
  const DistillKeys& keys = distill_keys(config);
  if (keys.top_k == 0)
    fail(
        "[distill.teacher_logits] is for the largest logits alone: set distill.top_k to how many, such as "
        "64");
  if (config.adapters.size() > 1)
    fail("[distill.teacher_logits] is for one learner, the run has {} adapters; train them one by one",
         config.adapters.size());
}

void check(const RunConfig& config) {
  const DistillKeys& keys = distill_keys(config);
  if (!keys.teacher_logits.empty()) check_stored(config);
  const bool stored = !keys.teacher_logits.empty() && StoredLogits::are_in(keys.teacher_logits);
  if (!stored && keys.teacher.empty() && config.adapters.empty() && !config.quantize.to_options().any())
    fail(
        "[distill.teacher] is missing: give the folder of a model to learn from; without it the teacher is "
        "the model itself, which differs from what is trained only with adapters or quantize");
  if (!stored && keys.teacher.empty() && !config.adapters.empty() && config.quantize.to_options().any())
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
  const DistillKeys& keys = distill_keys(config);
  const std::string& folder = keys.teacher;
  return folder.empty() || !keys.teacher_logits.empty() ? std::nullopt : std::optional(folder);
}

// A teacher in memory reads the rows of one learner ahead, pass by pass as the learner does.
std::string refuses_stages(const RunConfig& config) {
  return distill_keys(config).teacher_logits.empty() && config.adapters.size() > 1
             ? fmt::format(
                   "has a teacher in memory and {} adapters, whose passes have rows of several; train "
                   "them one by one, or set parallel.pipeline to 1",
                   config.adapters.size())
             : "";
}

bool reads_ahead(const RunConfig& config) { return distill_keys(config).teacher_logits.empty(); }

std::string other_model(const RunConfig& config) { return distill_keys(config).teacher; }

// With a teacher that lives as long as it is used.
class DistillFrom : public training::Distill {
 public:
  DistillFrom(std::shared_ptr<const models::Model> teacher, const layers::Decoder& model,
              const RunConfig& config)
      : Distill(model, teacher->decoder, distill_keys(config).to_loss(),
                config.train.compute.micro_batch_tokens, distill_keys(config).top_k),
        teacher_model_(std::move(teacher)) {}

 private:
  std::shared_ptr<const models::Model> teacher_model_;
};

// In the place of stored logits where values do not matter.
class AnyTokens : public training::KnownTokens {
 public:
  explicit AnyTokens(int64_t top_k) : top_k_(top_k) {}
  losses::TopTokens of(std::span<const data::PackedRow> rows) const override {
    const int64_t tokens = data::num_targets(rows);
    const losses::TopTokens all{Tensor::empty({tokens, top_k_}, DType::kI32, MemoryTag::kData),
                                Tensor::zeros({tokens, top_k_}, DType::kF32),
                                Tensor::zeros({tokens, 1}, DType::kF32)};
    for (int64_t i = 0; i < tokens * top_k_; ++i)
      all.ids.data<int32_t>()[i] = static_cast<int32_t>(i % top_k_);
    return all;
  }

 private:
  int64_t top_k_;
};

void check_top_k(const DistillKeys& keys, const layers::Decoder& model) {
  if (const int64_t vocab = model.config().vocab_size; keys.top_k > vocab)
    fail("[distill.top_k] is {}, but the vocabulary has {} tokens; leave it out for all of them", keys.top_k,
         vocab);
}

// As the configuration wants it.
template <class Objective>
Recipe::Objective watching(const DistillKeys& keys, std::shared_ptr<Objective> objective) {
  if (keys.logit_statistics) objective->watch_logits();
  return objective;
}

Recipe::Objective rehearsed(const RunConfig& config, const layers::Decoder& model,
                            const layers::Decoder* second) {
  const DistillKeys& keys = distill_keys(config);
  check_top_k(keys, model);
  const int64_t micro_batch = config.train.compute.micro_batch_tokens;
  if (!keys.teacher_logits.empty())
    return watching(keys, std::make_shared<training::Distill>(model, std::make_shared<AnyTokens>(keys.top_k),
                                                              keys.to_loss(), micro_batch));
  return watching(keys, std::make_shared<training::Distill>(model, second != nullptr ? *second : model,
                                                            keys.to_loss(), micro_batch, keys.top_k));
}

// The teacher while its logits are computed: the trained model itself before its first step, where it is
// that.
std::shared_ptr<const layers::Decoder> teacher_of(const ObjectiveInputs& inputs) {
  const std::string& folder = distill_keys(inputs.config).teacher;
  if (folder.empty()) return {std::shared_ptr<void>(), &inputs.setup.model->decoder};
  const std::shared_ptr<const models::Model> model = inputs.setup.others->frozen(folder);
  return {model, &model->decoder};
}

Recipe::Objective objective(const ObjectiveInputs& inputs) {
  const DistillKeys& keys = distill_keys(inputs.config);
  const layers::Decoder& model = inputs.setup.model->decoder;
  check_top_k(keys, model);
  if (!keys.teacher_logits.empty())
    return watching(keys,
                    std::make_shared<training::Distill>(
                        model, StoredLogits::open_or_compute(inputs, [&] { return teacher_of(inputs); }),
                        keys.to_loss(), inputs.config.train.compute.micro_batch_tokens));
  if (keys.teacher.empty()) {
    log_info(inputs.config.adapters.empty() ? "teacher: the model without the rounding of quantize"
                                            : "teacher: the model without its adapter");
    return rehearsed(inputs.config, model, nullptr);
  }
  log_info(fmt::format("teacher: {}, a second model in memory", keys.teacher));
  return watching(
      keys, std::make_shared<DistillFrom>(inputs.setup.others->frozen(keys.teacher), model, inputs.config));
}

// Nothing is stored while time is measured.
Recipe::Objective measured(const ObjectiveInputs& inputs) {
  return distill_keys(inputs.config).teacher_logits.empty()
             ? objective(inputs)
             : rehearsed(inputs.config, inputs.setup.model->decoder, nullptr);
}

}  // namespace

void register_distill() {
  registry<Recipe>().add(
      "distill",
      {.learns_from = "a teacher's distributions at examples",
       .keys = OwnKeys::of<DistillKeys>("How a teacher's distributions are learned, with recipe distill."),
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
       .measured = measured,
       .rehearsed = rehearsed,
       .refuses_stages = refuses_stages,
       .reads_ahead = reads_ahead});
}

}  // namespace temper::recipes
