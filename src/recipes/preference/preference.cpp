#include "training/preference.h"

#include "base/error.h"
#include "recipes/preference/reference.h"
#include "recipes/recipe.h"

namespace temper::recipes {
namespace {

using Kind = PreferenceConfig::Loss;

training::PreferenceLoss loss_of(const PreferenceConfig& c) {
  if (c.loss == Kind::kOrpo) return losses::Orpo{c.lambda};
  if (c.loss == Kind::kKto) return losses::Kto{c.beta, c.good_weight, c.bad_weight};
  return losses::Dpo{.form = c.loss == Kind::kIpo ? losses::Dpo::Form::kIpo : losses::Dpo::Form::kSigmoid,
                     .beta = c.beta,
                     .label_smoothing = c.label_smoothing,
                     .margin = c.margin,
                     .length_normalized = c.length_normalized,
                     .reference_free = c.reference_free};
}

// A key that was set, of a loss that does not read it, is a misunderstanding.
void check_keys(const PreferenceConfig& c) {
  const PreferenceConfig unset;
  const bool dpo = c.loss == Kind::kDpo, pair = dpo || c.loss == Kind::kIpo, kto = c.loss == Kind::kKto;
  const auto refuse = [](bool set, bool read, const char* key, const char* by) {
    if (set && !read)
      fail("[preference.{}] is read by {} only; leave it out, or set preference.loss", key, by);
  };
  refuse(c.beta != unset.beta, pair || kto, "beta", "dpo, ipo and kto");
  refuse(c.label_smoothing != 0, dpo, "label_smoothing", "dpo");
  refuse(c.margin != 0, dpo, "margin", "dpo");
  refuse(c.length_normalized, pair, "length_normalized", "dpo and ipo");
  refuse(c.reference_free, pair, "reference_free", "dpo and ipo");
  refuse(c.lambda != unset.lambda, c.loss == Kind::kOrpo, "lambda", "orpo");
  refuse(c.good_weight != 1, kto, "good_weight", "kto");
  refuse(c.bad_weight != 1, kto, "bad_weight", "kto");
  const bool compares = training::needs_reference(loss_of(c));
  if (!compares && (!c.reference.empty() || c.precompute))
    fail("[preference.{}] is set, but the loss has no reference; leave it out",
         c.reference.empty() ? "precompute" : "reference");
  if (kto && c.precompute.value_or(false))
    fail(
        "[preference.precompute] is true, but kto asks the reference for answers to other prompts in every "
        "step; leave it out");
}

void check(const RunConfig& config) {
  check_keys(config.preference);
  if (config.data.loss == data::LossOn::kAll)
    fail("[data.loss] is all, but a preference is about answers; leave it out");
  if (config.data.overflow == data::Overflow::kSplit)
    fail("[data.overflow] is split, but an answer is judged whole; set truncate, drop or error");
  if (config.train.z_loss > 0)
    fail("[train.z_loss] is {}, which recipe preference does not have; leave it out", config.train.z_loss);
  check_reference(config);
}

data::Goal goal(const RunConfig& config) {
  return config.preference.loss == Kind::kKto ? data::Goal::kJudgments : data::Goal::kPairs;
}

bool has_reference(const RunConfig& config, ReferenceKind kind) {
  return training::needs_reference(loss_of(config.preference)) && kind_of_reference(config) == kind;
}
bool holds_second_model(const RunConfig& config) {
  return has_reference(config, ReferenceKind::kSecondModel);
}
bool stores_reference(const RunConfig& config) { return has_reference(config, ReferenceKind::kStored); }

std::shared_ptr<const training::Objective> objective(const Learner& learner) {
  const training::PreferenceLoss loss = loss_of(learner.config.preference);
  return std::make_shared<training::Preference>(
      learner.session.model->decoder, loss, learner.config.train.micro_batch_tokens,
      training::needs_reference(loss) ? make_reference(learner) : nullptr);
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

std::shared_ptr<const training::Objective> rehearsed(const RunConfig& config, const layers::Decoder& model,
                                                     const layers::Decoder* second) {
  const training::PreferenceLoss loss = loss_of(config.preference);
  const int64_t micro_batch = config.train.micro_batch_tokens;
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

}  // namespace

void register_preference() {
  registry<Recipe>().add("preference",
                         {check, goal, holds_second_model, stores_reference, objective, rehearsed});
}

}  // namespace temper::recipes
