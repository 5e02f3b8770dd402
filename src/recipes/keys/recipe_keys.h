#pragma once
#include <any>
#include <map>
#include <string>
#include <string_view>

#include "base/error.h"
#include "config/schema.h"

namespace temper::recipes {

// Keys of one recipe: a struct of its room with a describe() next to it. In YAML it is a group with the
// recipe's name.
struct OwnKeys {
  using Defaults = std::any (*)();
  using Declare = void (*)(config::Schema& s, const std::string& group, std::any& values,
                           std::string_view description);
  std::string_view description = {};
  Defaults defaults = nullptr;  // null: the recipe has no keys of its own
  Declare declare = nullptr;

  template <class Keys>
  static OwnKeys of(std::string_view description) {
    return {description, [] { return std::any(Keys()); },
            [](config::Schema& s, const std::string& group, std::any& values, std::string_view text) {
              s.group(group, std::any_cast<Keys&>(values), text);
            }};
  }
};

// The values of the own keys of all registered recipes, as a run's configuration carries them.
class RecipeKeys {
 public:
  RecipeKeys();  // the defaults
  template <class Keys>
  const Keys& of() const {
    const Keys* found = nullptr;
    for (const auto& [recipe, values] : values_)
      if (const Keys* own = std::any_cast<Keys>(&values)) found = own;
    invariant(found != nullptr, "no registered recipe has these keys");
    return *found;
  }

  void declare(config::Schema& s);  // a group for each recipe that has keys, in the order of registration

 private:
  std::map<std::string, std::any> values_;  // by recipe
};

// Refuses keys that were set and belong to another recipe than `recipe`: a misunderstanding.
void check_keys_of_others(const RecipeKeys& keys, const std::string& recipe);

}  // namespace temper::recipes
