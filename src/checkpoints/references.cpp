#include "checkpoints/references.h"

#include <algorithm>
#include <mutex>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "checkpoints/names.h"

namespace temper::checkpoints {
namespace {

// What a processor of pictures or sound is made of.
constexpr std::initializer_list<const char*> kProcessor = {
    "preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json"};

void report_once(const std::string& original, const std::string& name,
                 const std::vector<std::string>& dropped) {
  static std::mutex mutex;
  static std::set<std::string> reported;
  const std::lock_guard lock(mutex);
  if (!reported.insert(join_path(original, name)).second) return;
  log_warning(fmt::format("[{}] what is saved leaves out of {} what names no file of this folder: {}",
                          original.empty() ? "model" : original, name, list_some(dropped)));
}

}  // namespace

void References::add_those_of(std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (!original_.empty() && exists(join_path(original_, name))) files_.insert(name);
}

// "file.Class" of this folder; "repository--file.Class" is of another. Code imports its neighbours.
bool References::has_code(const std::string& reference) {
  const size_t dot = reference.find('.');
  const std::string file = reference.substr(0, dot) + ".py";
  if (dot == std::string::npos || reference.find("--") != std::string::npos || original_.empty() ||
      !is_plain_name(file) || !exists(join_path(original_, file)))
    return false;
  for (const std::string& other : list_directory(original_))
    if (other.ends_with(".py")) files_.insert(other);
  return true;
}

// A reference, null, or a list of them (of a slow and a fast tokenizer).
bool References::keep_code(Json& value) {
  if (value.is_string()) return has_code(value.as_string());
  if (value.is_object()) {  // of a pipeline
    const Json* code = value.find("impl");
    return code == nullptr || !code->is_string() || has_code(code->as_string());
  }
  if (!value.is_array()) return true;
  bool any = false;
  for (Json& each : value.as_array()) {
    if (each.is_string() && !has_code(each.as_string())) each = Json();
    any = any || !each.is_null();
  }
  return any;
}

Json References::resolve(const std::string& name, Json json) {
  if (!json.is_object()) return json;
  std::vector<std::string> dropped;
  const auto drop = [&](const std::string& key, const Json& value) {
    dropped.push_back(fmt::format("{} ({})", key, value.dump()));
    return true;
  };
  std::erase_if(json.as_object(), [&](auto& entry) {
    auto& [key, value] = entry;
    if ((key == "auto_map" || key == "custom_pipelines") && value.is_object()) {
      std::erase_if(value.as_object(), [&](auto& code) {
        const Json before = code.second;
        const bool kept = keep_code(code.second);
        if (!kept || code.second != before) drop(key + "." + code.first, before);
        return !kept;
      });
      return value.as_object().empty();
    }
    if (key == "processor_class") add_those_of(kProcessor);
    if (!key.ends_with("_file") || !value.is_string()) return false;
    const std::string& file = value.as_string();
    if (!is_plain_name(file) || original_.empty() || !exists(join_path(original_, file)))
      return drop(key, value);
    files_.insert(file);
    return false;
  });
  if (!dropped.empty()) report_once(original_, name, dropped);
  return json;
}

}  // namespace temper::checkpoints
