#pragma once
#include "recipes/setup/recipe_inputs.h"
#include "training/objectives/reference.h"

// What preference learning compares a learner with.
namespace temper::recipes {

enum class ReferenceKind {
  kBase,         // the frozen model below the adapter
  kSecondModel,  // in memory in addition to the trained one
  kStored,       // log-probabilities, computed once
};

ReferenceKind kind_of_reference(const RunConfig& config);
std::string folder_of_reference(const RunConfig& config);

// Refuses a reference that is no model, or reads other tokens than the one that is trained.
void check_reference(const RunConfig& config);

// Stored numbers are computed here unless the run's folder has them.
std::shared_ptr<const training::Reference> make_reference(const ObjectiveInputs& inputs);

}  // namespace temper::recipes
