#include <set>

#include "config/load.h"
#include "recipes/lane.h"

namespace temper::recipes {
namespace {

// Keys that change what is watched or kept, or only the time a step takes, or that extend a run.
const std::set<std::string, std::less<>> kFree = {"output",          "device",
                                                  "train.threads",   "train.pin_threads",
                                                  "train.resume",    "train.steps",
                                                  "train.epochs",    "eval",
                                                  "checkpoint",      "memory_limit_mib",
                                                  "data.eval",       "data.threads",
                                                  "data.on_bad_row", "train.activation_checkpointing",
                                                  "train.cuda_graph"};

Json value_of(const config::Schema& schema);

Json value_of(const config::Field& field) {
  if (field.kind == config::Field::Kind::kValue) return field.get();
  if (field.kind == config::Field::Kind::kGroup) return value_of(*field.group);
  Json::Array elements;
  for (size_t i = 0; i < field.size(); ++i) elements.push_back(value_of(field.element(i)));
  return elements;
}

Json value_of(const config::Schema& schema) {
  Json::Object values;
  for (const auto& field : schema.fields()) values.emplace_back(field->name, value_of(*field));
  return values;
}

// Files may be called otherwise and lie elsewhere: what they hold is compared when the run is resumed.
bool is_free(const std::string& path, const std::string& name) {
  return kFree.contains(path) || (path.starts_with("data.train[") && (name == "path" || name == "name"));
}

void compare(const config::Schema& before, const config::Schema& now, const std::string& prefix,
             std::vector<std::string>& differences) {
  for (const auto& field : now.fields()) {
    const std::string path = prefix + field->name;
    if (is_free(path, field->name)) continue;
    const config::Field* old = before.find(field->name);
    if (field->kind == config::Field::Kind::kGroup) {
      compare(*old->group, *field->group, path + ".", differences);
    } else if (field->kind == config::Field::Kind::kList && old->size() == field->size()) {
      for (size_t i = 0; i < field->size(); ++i)
        compare(old->element(i), field->element(i), fmt::format("{}[{}].", path, i), differences);
    } else if (const Json was = value_of(*old), is = value_of(*field); was != is) {
      differences.push_back(fmt::format("{}: {}, now {}", path, was.dump(), is.dump()));
    }
  }
}

}  // namespace

std::vector<std::string> conflicting_keys(const std::string& old_yaml_file, const RunConfig& now) {
  RunConfig before, copy = now;
  config::Schema old_schema = config::schema_of(before), schema = config::schema_of(copy);
  config::load(old_schema, old_yaml_file);
  std::vector<std::string> differences;
  compare(old_schema, schema, "", differences);
  return differences;
}

}  // namespace temper::recipes
