#pragma once
#include <initializer_list>
#include <set>
#include <string>
#include <vector>

#include "base/json/json.h"

namespace temper::checkpoints {

// What the JSON files of a model's folder name of other files: code (auto_map, custom_pipelines), a
// processor (processor_class), and keys that end in "_file"; at the top and in objects such as text_config.
// They come from the folder `original`.
class References {
 public:
  explicit References(std::string original) : original_(std::move(original)) {}

  // The file's contents, without what names no file of `original`: that is reported, once in a process.
  Json resolve(const std::string& name, Json json);
  // The files that what was resolved needs besides.
  const std::set<std::string>& files() const { return files_; }

 private:
  bool has_code(const std::string& reference);
  bool keep_code(Json& value);
  bool has_file(const Json& value);
  void keep_codes(Json& codes, const std::string& path);
  void resolve_in(Json& object, const std::string& path);
  void add_those_of(std::initializer_list<const char*> names);

  std::string original_;
  std::set<std::string> files_;
  std::vector<std::string> dropped_;  // of the file that is being resolved
};

}  // namespace temper::checkpoints
