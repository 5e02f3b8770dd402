#include "recipes/preference/preference_keys.h"

#include "base/error.h"

namespace temper::recipes {

using Kind = PreferenceKeys::Loss;

void describe(config::Schema& s, PreferenceKeys& c) {
  using Loss = PreferenceKeys::Loss;
  s.choice("loss", c.loss,
           {{"dpo", Loss::kDpo}, {"ipo", Loss::kIpo}, {"orpo", Loss::kOrpo}, {"kto", Loss::kKto}},
           "The loss of pairs (rows with prompt, chosen and rejected), or of judged answers (kto: rows with "
           "prompt, completion and label).");
  s.field("beta", c.beta, "How closely the model is held to its reference; dpo, ipo and kto read it.")
      .above(0);
  s.field("label_smoothing", c.label_smoothing,
          "The assumed fraction of pairs whose chosen and rejected answers are swapped; dpo reads it.")
      .at_least(0)
      .below(0.5);
  s.field("margin", c.margin,
          "The reward margin by which the chosen answer must exceed the rejected one; dpo reads it.")
      .at_least(0);
  s.field("length_normalized", c.length_normalized,
          "Compare log-probabilities per token; dpo and ipo read it.");
  s.field("reference_free", c.reference_free, "Compare with no reference; dpo and ipo read it.");
  s.field("lambda", c.lambda, "The weight of the odds ratio; orpo reads it.").above(0);
  s.field("desirable_weight", c.desirable_weight,
          "The weight of desirable answers (label true) in the loss; kto reads it.")
      .above(0)
      .formerly("good_weight");
  s.field("undesirable_weight", c.undesirable_weight,
          "The weight of undesirable answers (label false) in the loss; kto reads it.")
      .above(0)
      .formerly("bad_weight");
  s.field("reference", c.reference,
          "The folder of a model to compare with. Omitted: the model as it was (without its adapter).")
      .path();
  s.field("precompute", c.precompute,
          "Compute the reference's log-probabilities once and keep them in the run's folder. Omitted: true "
          "when all weights are trained.");
  s.field("share_prompts", c.share_prompts, "Compute the prompt of both answers of a pair once.");
}

training::PreferenceLoss PreferenceKeys::to_loss() const {
  if (loss == Kind::kOrpo) return losses::Orpo{lambda};
  if (loss == Kind::kKto) return losses::Kto{beta, desirable_weight, undesirable_weight};
  return losses::Dpo{.form = loss == Kind::kIpo ? losses::Dpo::Form::kIpo : losses::Dpo::Form::kSigmoid,
                     .beta = beta,
                     .label_smoothing = label_smoothing,
                     .margin = margin,
                     .length_normalized = length_normalized,
                     .reference_free = reference_free};
}

void check_keys(const PreferenceKeys& c) {
  const PreferenceKeys unset;
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
  refuse(c.desirable_weight != 1, kto, "desirable_weight", "kto");
  refuse(c.undesirable_weight != 1, kto, "undesirable_weight", "kto");
  const bool compares = training::needs_reference(c.to_loss());
  if (!compares && (!c.reference.empty() || c.precompute))
    fail("[preference.{}] is set, but the loss has no reference; leave it out",
         c.reference.empty() ? "precompute" : "reference");
  if (kto && c.precompute.value_or(false))
    fail(
        "[preference.precompute] is true, but kto asks the reference for answers to other prompts in every "
        "step; leave it out");
}

}  // namespace temper::recipes
