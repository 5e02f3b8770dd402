#pragma once
#include "training/objectives/objective.h"

namespace temper::training {

struct ValueOptions {
  double clip = 0.2;  // how far a value may move from the old one for its loss (losses::value_loss); 0: none
};

// A critic learns what answers turn out to be worth: the mean of losses::value_loss over the sampled tokens
// of the whole update, whatever the micro-batches and ranks. Rows are those of PolicyGradient, with old
// values and returns. The value of a token is that of the position before it, which has not seen it.
class ValueLearning : public Objective {
 public:
  // `model` gives values (layers::DecoderConfig::gives_values).
  ValueLearning(const layers::Decoder& model, const ValueOptions& options)
      : model_(model), options_(options) {}

  std::unique_ptr<StepLoss> begin(const std::vector<data::PackedRow>& rows, const layers::Adapter* adapter,
                                  collectives::Group& ranks) const override;
  EvalResult evaluate(const std::vector<data::PackedRow>& rows, const layers::Adapter* adapter,
                      const parallel::UpdateRanks& ranks) const override;

 private:
  class Step;

  const layers::Decoder& model_;
  ValueOptions options_;
};

// Of every target of the rows, in their order: the value before it was sampled, and the one behind it.
struct TokenValues {
  std::vector<float> before, behind;
};
// By a model with an adapter or (null) without; on all stages of a pipeline, which call it together.
TokenValues token_values(const layers::Decoder& model, const layers::Adapter* adapter,
                         const std::vector<data::PackedRow>& rows, int64_t micro_batch_tokens);

}  // namespace temper::training
