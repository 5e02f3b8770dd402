#include "checkpoints/files/references.h"

#include <algorithm>
#include <mutex>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "checkpoints/files/names.h"

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

// Of auto_map or custom_pipelines, named `path`.
void References::keep_codes(Json& codes, const std::string& path) {
  std::erase_if(codes.as_object(), [&](auto& code) {
    const Json before = code.second;
    const bool kept = keep_code(code.second);
    if (!kept || code.second != before)
      dropped_.push_back(fmt::format("{}.{} ({})", path, code.first, before.dump()));
    return !kept;
  });
}

bool References::has_file(const Json& value) {
  const std::string& file = value.as_string();
  if (!is_plain_name(file) || original_.empty() || !exists(join_path(original_, file))) return false;
  files_.insert(file);
  return true;
}

// `path`: "" at the top, or "text_config.".
void References::resolve_in(Json& object, const std::string& path) {
  std::erase_if(object.as_object(), [&](auto& entry) {
    auto& [key, value] = entry;
    if ((key == "auto_map" || key == "custom_pipelines") && value.is_object()) {
      keep_codes(value, path + key);
      return value.as_object().empty();
    }
    if (value.is_object()) resolve_in(value, path + key + ".");
    if (key == "processor_class") add_those_of(kProcessor);
    if (!key.ends_with("_file") || !value.is_string() || has_file(value)) return false;
    dropped_.push_back(fmt::format("{}{} ({})", path, key, value.dump()));
    return true;
  });
}

Json References::resolve(const std::string& name, Json json) {
  if (!json.is_object()) return json;
  dropped_.clear();
  resolve_in(json, "");
  if (!dropped_.empty()) report_once(original_, name, dropped_);
  return json;
}

}  // namespace temper::checkpoints
