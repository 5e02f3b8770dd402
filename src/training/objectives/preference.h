#pragma once
#include <memory>
#include <variant>

#include "losses/dpo.h"
#include "losses/kto.h"
#include "losses/orpo.h"
#include "training/objectives/objective.h"
#include "training/objectives/reference.h"

namespace temper::training {

using PreferenceLoss = std::variant<losses::Dpo, losses::Orpo, losses::Kto>;

bool needs_reference(const PreferenceLoss& loss);

// The mean of a loss over the step's pairs, or over its answers (KTO), whatever the micro-batches. Rows are
// of data::Goal::kPairs or kJudgments.
//
// Every loss is a function of Σ log p of whole answers, which the head's fused loss yields without keeping
// logits. Where the head is frozen one pass over it gives those sums and the gradient of each token's -log p,
// which then gets the factor -∂loss/∂Σ log p of its answer. Where the head is trained, a first pass gives the
// sums and a second one, with the factors, all gradients. The body runs once. What the reference says, and
// KTO's z0, are known before the first micro-batch.
class Preference : public Objective {
 public:
  // `reference` may be null unless needs_reference(); KTO asks it for answers to other prompts, too.
  Preference(const layers::Decoder& model, const PreferenceLoss& loss, int64_t micro_batch_tokens,
             std::shared_ptr<const Reference> reference)
      : model_(model),
        loss_(loss),
        micro_batch_tokens_(micro_batch_tokens),
        reference_(std::move(reference)) {}

  // An Error for KTO with rows of fewer than two prompts: z0 is of answers to other prompts.
  void check(const std::vector<data::PackedRow>& rows, collectives::Group& ranks) const override;
  // Rows that check() takes.
  std::unique_ptr<StepLoss> begin(const std::vector<data::PackedRow>& rows, const layers::Adapter* adapter,
                                  collectives::Group& ranks) const override;
  EvalResult evaluate(const std::vector<data::PackedRow>& rows, const layers::Adapter* adapter,
                      const parallel::UpdateRanks& ranks) const override;

 private:
  class Step;

  const layers::Decoder& model_;
  PreferenceLoss loss_;
  int64_t micro_batch_tokens_;
  std::shared_ptr<const Reference> reference_;
};

// Each document's prompt with an answer of the next one (of the first, for the last), as rows of their own:
// what KTO's z0 is estimated from. Answers are cut to `max_length` tokens with their prompt. Of several ranks
// each gets the rows of its own documents; the next document may be another rank's.
std::vector<data::PackedRow> mismatched(const std::vector<data::PackedRow>& rows, int64_t max_length,
                                        collectives::Group& ranks = collectives::alone());

}  // namespace temper::training
