#include <functional>
#include <map>
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

// Keys that are newer than the first runs, and what runs did before they existed.
const std::map<std::string, Json, std::less<>> kBefore = {{"data.on_empty_answer", "learn"}};

using Written = std::function<bool(const std::string& path)>;

// Files may be called otherwise and lie elsewhere: what they hold is compared when the run is resumed.
bool is_free(const std::string& path, const std::string& name) {
  return kFree.contains(path) || (path.starts_with("data.train[") && (name == "path" || name == "name"));
}

void compare(const config::Schema& before, const config::Schema& now, const std::string& prefix,
             const Written& written, std::vector<std::string>& differences) {
  for (const auto& field : now.fields()) {
    const std::string path = prefix + field->name;
    if (is_free(path, field->name)) continue;
    const config::Field* old = before.find(field->name);
    if (field->kind == config::Field::Kind::kGroup) {
      compare(*old->group, *field->group, path + ".", written, differences);
    } else if (field->kind == config::Field::Kind::kList && old->size() == field->size()) {
      for (size_t i = 0; i < field->size(); ++i)
        compare(old->element(i), field->element(i), fmt::format("{}[{}].", path, i), written, differences);
    } else if (const Json was = value_of(*old), is = value_of(*field); was != is) {
      differences.push_back(fmt::format("{}: {}, now {}{}", path, was.dump(), is.dump(),
                                        written(path) ? "" : " (the run is older than this key)"));
    }
  }
}

}  // namespace

std::vector<std::string> conflicting_keys(const std::string& old_yaml_file, const RunConfig& now) {
  RunConfig before, copy = now;
  config::Schema old_schema = config::schema_of(before), schema = config::schema_of(copy);
  for (const auto& [path, value] : kBefore) old_schema.find_path(path)->set(value);
  config::load(old_schema, old_yaml_file);
  std::vector<std::string> differences;
  const auto written = [&](const std::string& path) {
    return !kBefore.contains(path) || old_schema.was_written(path);
  };
  compare(old_schema, schema, "", written, differences);
  return differences;
}

}  // namespace temper::recipes
