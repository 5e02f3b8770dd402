#include "training/objectives/preference.h"

#include "base/error.h"
#include "recipes/preference/preference_keys.h"
#include "recipes/preference/reference.h"
#include "recipes/setup/recipe_inputs.h"

namespace temper::recipes {
namespace {

void check(const RunConfig& config) {
  check_keys(preference_keys(config));
  if (config.data.loss == data::LossOn::kAll)
    fail("[data.loss] is all, but a preference is about answers; leave it out");
  if (config.data.overflow == data::Overflow::kSplit)
    fail("[data.overflow] is split, but an answer must stay in one row; set truncate, drop or error");
  if (config.train.z_loss > 0)
    fail("[train.z_loss] is {}, which recipe preference does not have; leave it out", config.train.z_loss);
  check_reference(config);
}

RowsWanted rows(const RunConfig& config) {
  const PreferenceKeys& keys = preference_keys(config);
  return {keys.loss == PreferenceKeys::Loss::kKto ? data::Goal::kJudgments : data::Goal::kPairs,
          keys.share_prompts};
}

bool stores_reference(const RunConfig& config) {
  return training::needs_reference(preference_keys(config).to_loss()) &&
         kind_of_reference(config) == ReferenceKind::kStored;
}

std::optional<std::string> second_model(const RunConfig& config) {
  if (!training::needs_reference(preference_keys(config).to_loss()) ||
      kind_of_reference(config) != ReferenceKind::kSecondModel)
    return std::nullopt;
  return folder_of_reference(config);
}

std::string other_model(const RunConfig& config) { return preference_keys(config).reference; }

// A document's hash and two numbers.
int64_t stored_bytes(const RunConfig& config, int64_t documents) {
  constexpr int64_t kOfDocument = 16;
  return stores_reference(config) ? documents * kOfDocument : 0;
}

Recipe::Objective objective(const ObjectiveInputs& inputs) {
  const training::PreferenceLoss loss = preference_keys(inputs.config).to_loss();
  return std::make_shared<training::Preference>(
      inputs.setup.model->decoder, loss, inputs.config.train.compute.micro_batch_tokens,
      training::needs_reference(loss) ? make_reference(inputs) : nullptr);
}

// Of numbers that a file holds.
class KnownReference : public training::Reference {
 public:
  std::vector<double> logps(const std::vector<data::PackedRow>& rows) const override {
    size_t answers = 0;
    for (const data::PackedRow& row : rows)
      for (const auto& document : row.answers) answers += document.size();
    return std::vector<double>(answers);
  }
  double flops(std::span<const training::DocumentSpan>) const override { return 0; }
};

Recipe::Objective rehearsed(const RunConfig& config, const layers::Decoder& model,
                            const layers::Decoder* second) {
  const training::PreferenceLoss loss = preference_keys(config).to_loss();
  const int64_t micro_batch = config.train.compute.micro_batch_tokens;
  std::shared_ptr<const training::Reference> reference;
  if (training::needs_reference(loss)) {
    if (kind_of_reference(config) == ReferenceKind::kStored)
      reference = std::make_shared<KnownReference>();
    else
      reference =
          std::make_shared<training::ModelReference>(second != nullptr ? *second : model, micro_batch);
  }
  return std::make_shared<training::Preference>(model, loss, micro_batch, reference);
}

// Stored numbers are zeros while time is measured.
Recipe::Objective measured(const ObjectiveInputs& inputs) {
  return stores_reference(inputs.config) ? rehearsed(inputs.config, inputs.setup.model->decoder, nullptr)
                                         : objective(inputs);
}

}  // namespace

void register_preference() {
  registry<Recipe>().add(
      "preference",
      {.learns_from = "judged answers",
       .keys = OwnKeys::of<PreferenceKeys>("How judged answers are learned from, with recipe preference."),
       .loss_key = "loss",
       .answers = {{"dpo", "write recipe: preference; its preference.loss is dpo"},
                   {"ipo", "write recipe: preference, and preference.loss: ipo"},
                   {"orpo", "write recipe: preference, and preference.loss: orpo"},
                   {"kto", "write recipe: preference, and preference.loss: kto"}},
       .foreign_names = {{"preference.loss", {"loss_type", "pref_loss", "rlhf_loss"}},
                         {"preference.beta", {"dpo_beta", "pref_beta", "kto_beta", "rl_beta"}},
                         {"preference.reference",
                          {"ref_model", "reference_model", "ref_model_path", "ref_model_name_or_path"}},
                         {"preference.precompute", {"precompute_ref_log_probs", "precompute_reference"}}},
       .check = check,
       .rows = rows,
       .second_model = second_model,
       .other_model = other_model,
       .stored_bytes = stored_bytes,
       .objective = objective,
       .measured = measured,
       .rehearsed = rehearsed});
}

}  // namespace temper::recipes
