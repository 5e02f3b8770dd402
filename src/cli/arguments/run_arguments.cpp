#include "cli/arguments/run_arguments.h"

#include <algorithm>

#include "base/error.h"
#include "base/files.h"
#include "config/load.h"
#include "formats/endings.h"
#include "recipes/keys/model_defaults.h"

namespace temper::cli {
namespace {

bool contains(const std::vector<std::string>& list, const std::string& text) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

// "--dry_run" or "--dry-run=true" for "--dry-run".
void refuse_mistyped(const std::string& argument, const std::vector<std::string>& own_flags) {
  const size_t equals = argument.find('=');
  std::string name = argument.substr(0, equals);
  std::replace(name.begin(), name.end(), '_', '-');
  if (!contains(own_flags, name)) return;
  if (equals != std::string::npos) fail("[command line] flag {} takes no value; write {} alone", name, name);
  fail("[command line] unknown flag '{}'; did you mean '{}'?", argument, name);
}

}  // namespace

bool is_run_folder(const std::string& path) {
  return is_directory(path) && exists(join_path(path, "config.yaml")) &&
         !exists(join_path(path, "config.json"));
}

bool RunArguments::has(const std::string& flag) const { return contains(chosen, flag); }

std::optional<std::string> RunArguments::take(const std::string& name) {
  const std::vector<std::string> values = take_all(name);
  if (values.size() > 1) fail("[command line] flag {} is given twice; give it once", name);
  return values.empty() ? std::nullopt : std::optional(values.front());
}

std::vector<std::string> RunArguments::take_all(const std::string& name) {
  std::vector<std::string> values;
  for (size_t i = 0; i < flags.size();) {
    const bool joined = flags[i].starts_with(name + "=");
    if (!joined && flags[i] != name) {
      // The flag's value is not a name, whatever it looks like.
      i += flags[i].find('=') == std::string::npos ? 2 : 1;
      continue;
    }
    if (!joined && i + 1 == flags.size()) fail("[command line] flag {} has no value", name);
    values.push_back(joined ? flags[i].substr(name.size() + 1) : flags[i + 1]);
    const auto begin = flags.begin() + static_cast<std::ptrdiff_t>(i);
    flags.erase(begin, begin + (joined ? 1 : 2));
  }
  return values;
}

config::Schema RunArguments::load(recipes::RunConfig& config) const {
  const bool is_run = is_run_folder(yaml_file);
  if (is_directory(yaml_file) && !is_run)
    fail("[{}] is a folder, expected a run's YAML file; write --model.path {}", yaml_file, yaml_file);
  if (contains({".jsonl", ".ndjson", ".csv", ".tsv", ".parquet"}, formats::ending_of(yaml_file)))
    fail("[{}] is a data file, expected a run's YAML file; write --data.train {}", yaml_file, yaml_file);
  config::Schema schema = config::schema_of(config);
  if (is_run)
    config::load_saved(schema, join_path(yaml_file, "config.yaml"), flags);
  else
    config::load(schema, yaml_file, flags);
  recipes::set_model_defaults(config, schema);
  return schema;
}

RunArguments parse_run_arguments(const std::vector<std::string>& arguments,
                                 const std::vector<std::string>& own_flags) {
  RunArguments parsed;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (contains(own_flags, argument)) {
      if (parsed.has(argument)) fail("[command line] flag {} is given twice; give it once", argument);
      parsed.chosen.push_back(argument);
    } else if (argument == kStrictKernels) {
      parsed.flags.push_back(kStrictKernelsKey);
    } else if (argument.starts_with("--")) {
      refuse_mistyped(argument, own_flags);
      parsed.flags.push_back(argument);
      // "--key value": the value belongs to the flag, whatever it looks like, unless it is written with '='.
      if (argument.find('=') == std::string::npos && i + 1 < arguments.size())
        parsed.flags.push_back(arguments[++i]);
    } else if (argument.size() > 1 && argument.starts_with('-')) {
      fail("[command line] unknown flag '{}'; keys are written --KEY VALUE, see --help", argument);
    } else if (parsed.yaml_file.empty()) {
      parsed.yaml_file = argument;
    } else {
      fail("unexpected argument '{}' after '{}'; several values of a key are a list: --KEY [A,B]", argument,
           parsed.yaml_file);
    }
  }
  return parsed;
}

}  // namespace temper::cli
