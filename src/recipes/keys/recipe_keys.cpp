#include "recipes/keys/recipe_keys.h"

#include "recipes/keys/recipe.h"

namespace temper::recipes {

RecipeKeys::RecipeKeys() {
  for (const auto& [name, recipe] : registry<Recipe>().entries())
    if (recipe.keys.defaults != nullptr) values_.emplace(name, recipe.keys.defaults());
}

void RecipeKeys::declare(config::Schema& s) {
  for (const auto& [name, recipe] : registry<Recipe>().entries())
    if (const auto values = values_.find(name); values != values_.end())
      recipe.keys.declare(s, name, values->second, recipe.keys.description);
}

void check_keys_of_others(const RecipeKeys& keys, const std::string& recipe) {
  RecipeKeys given = keys, unset;
  config::Schema schema, defaults;
  given.declare(schema);
  unset.declare(defaults);
  for (const auto& group : schema.fields()) {
    if (group->name == recipe) continue;
    for (const auto& field : group->group->fields())
      if (config::value_of(*field) != config::value_of(*defaults.find(group->name)->group->find(field->name)))
        fail("[{0}.{1}] is read by recipe {0} only; leave it out, or set recipe: {0}", group->name,
             field->name);
  }
}

}  // namespace temper::recipes
