#include "base/error.h"
#include "recipes/recipe.h"

namespace temper::recipes {
namespace {

// A key that was set and is not read is a misunderstanding.
void check(const RunConfig& config) {
  PreferenceConfig unset, given = config.preference;
  const config::Schema defaults = config::schema_of(unset), schema = config::schema_of(given);
  for (const auto& field : schema.fields())
    if (field->get() != defaults.find(field->name)->get())
      fail("[preference.{}] is read by recipe preference only; leave it out, or set recipe: preference",
           field->name);
}

data::Goal goal(const RunConfig&) { return data::Goal::kLanguageModel; }

bool has_no_reference(const RunConfig&) { return false; }

std::shared_ptr<const training::Objective> objective(const Learner&) { return nullptr; }

std::shared_ptr<const training::Objective> rehearsed(const RunConfig&, const layers::Decoder&,
                                                     const layers::Decoder*) {
  return nullptr;
}

}  // namespace

void register_sft() {
  registry<Recipe>().add("sft", {check, goal, has_no_reference, has_no_reference, objective, rehearsed});
}

}  // namespace temper::recipes
