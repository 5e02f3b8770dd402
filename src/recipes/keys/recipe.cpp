#include "recipes/keys/recipe.h"

#include "base/text.h"
#include "data/rows/answers.h"

namespace temper::recipes {

const Recipe& recipe_of(const RunConfig& config) {
  const Recipe* recipe = registry<Recipe>().find(config.recipe);
  invariant(recipe != nullptr, "the configuration allows only registered recipes");
  invariant((recipe->objective == nullptr) == (recipe->rehearsed == nullptr),
            "a recipe has an objective that cannot be rehearsed");
  return *recipe;
}

void check_recipe(const RunConfig& config) {
  check_keys_of_others(config.recipe_keys, config.recipe);
  recipe_of(config).check(config);
}

int64_t row_tokens(const RunConfig& config) {
  return config.data.max_length * (data::compares(recipe_of(config).rows(config).goal) ? 2 : 1);
}

void declare_recipe(config::Schema& s, std::string& recipe) {
  const auto& recipes = registry<Recipe>().entries();
  std::vector<Json> names;
  std::vector<std::string> sources;
  for (const auto& [name, each] : recipes) {
    names.emplace_back(name);
    sources.push_back(fmt::format("{}on {} ({})",
                                  names.size() > 1 && names.size() == recipes.size() ? "or " : "",
                                  each.learns_from, name));
  }
  config::Field& field = s.field("recipe", recipe, fmt::format("The kind of training: {}.", join(sources)))
                             .one_of(std::move(names));
  for (const auto& [name, each] : recipes)
    for (const auto& [value, text] : each.answers) field.answer(std::string(value), std::string(text));
}

}  // namespace temper::recipes
