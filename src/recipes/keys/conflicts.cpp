#include "recipes/keys/conflicts.h"

#include "config/load.h"

namespace temper::recipes {
namespace {

// The values of keys that a file may be too old to have.
void set_before(const config::Schema& schema) {
  for (const auto& field : schema.fields()) {
    if (field->before.value) field->set(*field->before.value);
    if (field->kind == config::Field::Kind::kGroup) set_before(*field->group);
  }
}

struct Comparison {
  const config::Schema& old_run;
  std::vector<std::string> differences = {};

  void compare(const config::Schema& before, const config::Schema& now, const std::string& prefix) {
    for (const auto& field : now.fields())
      if (!field->may_change) compare(*before.find(field->name), *field, prefix + field->name);
  }

  void compare(const config::Field& before, const config::Field& now, const std::string& path) {
    if (now.kind == config::Field::Kind::kGroup) return compare(*before.group, *now.group, path + ".");
    if (now.kind == config::Field::Kind::kList && before.elements.size() == now.elements.size()) {
      for (size_t i = 0; i < now.elements.size(); ++i)
        compare(before.elements.at(i), now.elements.at(i), fmt::format("{}[{}].", path, i));
      return;
    }
    const Json was = config::value_of(before), is = config::value_of(now);
    if (was == is) return;
    const bool is_older = now.before.value && !old_run.was_written(path);
    differences.push_back(fmt::format("{}: {}, now {}{}", path, was.dump(), is.dump(),
                                      is_older ? " (the run is older than this key)" : ""));
  }
};

}  // namespace

std::vector<std::string> conflicting_keys(const std::string& old_yaml_file, const RunConfig& now) {
  RunConfig before, copy = now;
  config::Schema old_schema = config::schema_of(before);
  set_before(old_schema);
  config::load_saved(old_schema, old_yaml_file);
  Comparison comparison{old_schema};
  comparison.compare(old_schema, config::schema_of(copy), "");
  return comparison.differences;
}

}  // namespace temper::recipes
