#pragma once
#include <string>

#include "recipes/learner/learner_inputs.h"

namespace temper::recipes {

// The folder of a learner: its configuration, what it started from, and whether this run may continue the one
// that is there.
class LearnerFolder {
 public:
  explicit LearnerFolder(const LearnerInputs& inputs) : inputs_(inputs) {}  // which must outlive it

  bool has_states() const;
  // Errors: the folder holds a run that must not be resumed, or one with another configuration.
  void check() const;
  // Checks it. The record of a run that can be resumed stays as it is until this one has resumed it.
  void open(const std::string& resolved_yaml) const;
  void keep_config(const std::string& resolved_yaml) const;  // once the run has begun
  // `state`: of a checkpoint. Errors: other base weights, other texts, or another model under the same names.
  void check_base(const Json& state) const;
  void check_origin(const Json& state) const;
  void warn_of_program(const Json& state) const;  // where another one saved it

 private:
  const LearnerInputs& inputs_;
};

}  // namespace temper::recipes
