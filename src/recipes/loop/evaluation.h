#pragma once
#include <string>
#include <vector>

#include "recipes/keys/run_config.h"

namespace temper::recipes {

// An Error for evaluations at times where no rows are held out.
void check_evaluations(const RunConfig& config);

// A sentence about eval.max_new_tokens where it is set and no questions are answered: for a warning, since
// questions are often switched off by themselves. Empty otherwise.
std::string eval_key_without_effect(const RunConfig& config);

// How well a model predicts the targets of data.eval, of what data.eval_fraction holds out, or, where there
// is neither, of data.train.
struct Evaluation {
  std::string name;  // the model's folder, or the adapter's name
  int64_t target_tokens = 0;
  double loss = 0;  // mean of -log p over the target tokens
  double perplexity() const;
};

struct EvaluatedAdapter {
  std::string name, folder;  // folder "": the model alone
};

// Of the run's model with each of `adapters`. Where none are given: of each of the run's adapters as training
// left it in the run's folder, on its own data, or of the model, where the run has no adapters. And of the
// model `other` (unless ""), on the same data. With the run's dtype, device and kernels. The weights are
// read as they are, and inputs are rounded as a quantized folder says: quantize has no part in it. An Error
// where no row is kept, and for an adapter that is not there.
std::vector<Evaluation> evaluate_models(RunConfig config, const std::vector<EvaluatedAdapter>& adapters,
                                        const std::string& other);

}  // namespace temper::recipes
