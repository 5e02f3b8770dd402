#pragma once
#include "losses/distillation.h"
#include "training/objectives/objective.h"
#include "training/objectives/target_logits.h"

namespace temper::training {

// A model learns the distributions of another one (losses/distillation.h): the mean over all target tokens of
// the update, whatever the micro-batches and ranks. The teacher reads the rows that the student reads.
//
// The heads of both run over target tokens alone, some at a time, each time with the backward pass: logits of
// few tokens are there at once.
class Distill : public Objective {
 public:
  // `teacher`: with the vocabulary of `model`, and divided between the ranks alike; or `model` itself, which
  // then teaches without adapters and without rounding by quantizers. Where stages of a pipeline have parts
  // of both, the teacher reads an update's rows before the student does, and the last stage keeps the hidden
  // states of all of them; rows that are learned together are then of one learner. `top_k`: how many of its
  // tokens the loss compares one by one; all others count as one outcome. 0: all.
  Distill(const layers::Decoder& model, const layers::Decoder& teacher, const losses::Distillation& options,
          int64_t micro_batch_tokens, int64_t top_k = 0)
      : model_(model),
        teacher_(&teacher),
        options_(options),
        micro_batch_tokens_(micro_batch_tokens),
        top_k_(top_k) {}
  // From what is known of a teacher.
  Distill(const layers::Decoder& model, std::shared_ptr<const KnownTokens> teacher,
          const losses::Distillation& options, int64_t micro_batch_tokens)
      : model_(model),
        known_(std::move(teacher)),
        options_(options),
        micro_batch_tokens_(micro_batch_tokens) {}

  // Passes also tell what numbers the logits of both models are, before they are divided by the temperature.
  void watch_logits() { watches_logits_ = true; }

  std::unique_ptr<StepLoss> begin(const std::vector<data::PackedRow>& rows, const layers::Adapter* adapter,
                                  collectives::Group& ranks) const override;
  EvalResult evaluate(const std::vector<data::PackedRow>& rows, const layers::Adapter* adapter,
                      const parallel::UpdateRanks& ranks) const override;

 private:
  class Step;
  bool reads_ahead() const;
  std::vector<std::vector<data::PackedRow>> parts_of(const std::vector<data::PackedRow>& rows) const;

  const layers::Decoder& model_;
  const layers::Decoder* teacher_ = nullptr;  // or known_
  std::shared_ptr<const KnownTokens> known_;
  losses::Distillation options_;
  int64_t micro_batch_tokens_;
  int64_t top_k_ = 0;
  bool watches_logits_ = false;
};

}  // namespace temper::training
