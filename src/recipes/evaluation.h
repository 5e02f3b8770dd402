#pragma once
#include <string>
#include <vector>

#include "recipes/run_config.h"

namespace temper::recipes {

// An Error for evaluations at times where no rows are held out.
void check_evaluations(const RunConfig& config);

// A sentence about eval.max_new_tokens where it is set and no questions are answered: for a warning, since
// questions are often switched off by themselves. Empty otherwise.
std::string eval_key_without_effect(const RunConfig& config);

// How well a model predicts the targets of data.eval, of what data.eval_fraction holds out, or, where there
// is neither, of data.train.
struct Evaluation {
  std::string folder;
  int64_t target_tokens = 0;
  double loss = 0;  // mean of -log p over the target tokens
  double perplexity() const;
};

// Of each of the folders in turn, with the run's data, dtype, device and kernels. The weights are read as
// they are: quantize has no part in it. An Error for runs with adapters, and where no row is kept.
std::vector<Evaluation> evaluate_models(RunConfig config, const std::vector<std::string>& folders);

}  // namespace temper::recipes
