#include "base/hub_name.h"

#include "base/error.h"
#include "base/files.h"

namespace temper {

std::string hub_advice(const std::string& path, const std::string& kind) {
  const bool is_hub_name = !exists(parent_path(path)) && path.find('/') == path.rfind('/') &&
                           !path.starts_with('.') && !path.starts_with('/');
  if (!is_hub_name) return "";
  return fmt::format(
      "nothing is downloaded: a {} of that name on the Hugging Face Hub comes with 'hf download {} "
      "{}--local-dir "
      "{}'",
      kind, path, kind == "data set" ? "--repo-type dataset " : "", path);
}

}  // namespace temper
