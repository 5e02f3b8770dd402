#include "recipes/recipe.h"

namespace temper::recipes {
namespace {

void check(const RunConfig&) {}

data::Goal goal(const RunConfig&) { return data::Goal::kLanguageModel; }

bool holds_second_model(const RunConfig&) { return false; }

std::shared_ptr<const training::Objective> objective(const Learner&) { return nullptr; }

}  // namespace

void register_sft() { registry<Recipe>().add("sft", {check, goal, holds_second_model, objective}); }

}  // namespace temper::recipes
