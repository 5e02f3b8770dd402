#include "recipes/recipe.h"

#include "data/answers.h"

namespace temper::recipes {

const Recipe& recipe_of(const RunConfig& config) {
  const Recipe* recipe = registry<Recipe>().find(config.recipe);
  invariant(recipe != nullptr, "the configuration allows only registered recipes");
  return *recipe;
}

int64_t row_tokens(const RunConfig& config) {
  return config.data.max_length * (data::compares(recipe_of(config).goal(config)) ? 2 : 1);
}

}  // namespace temper::recipes
