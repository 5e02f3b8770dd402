#pragma once
#include "recipes/learner/tiny_run_test_support.h"
#include "recipes/loop/learners.h"

namespace temper::recipes {

// A run that would train adapters (none: the model) of a tiny model, whose weights are not there.
struct AdaptersRun {
  explicit AdaptersRun(const std::vector<std::string>& adapters)
      : setup(files.config(adapters)), learners(setup) {}

  std::string output() const { return files.output(); }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& learner : learners) found.push_back(learner->name());
    return found;
  }

  TinyRunFiles files;
  RunSetup setup;
  Learners learners;
};

}  // namespace temper::recipes
