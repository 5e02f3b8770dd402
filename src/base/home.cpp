#include "base/home.h"

#include <cstdlib>

#include "base/error.h"

namespace temper {

std::string expand_home(const std::string& path) {
  for (const std::string_view name : {"~", "$HOME", "${HOME}"}) {
    if (!path.starts_with(name) || (path.size() > name.size() && path[name.size()] != '/')) continue;
    const char* home = std::getenv("HOME");
    if (home == nullptr || *home == '\0')
      fail("[{}] names the user's folder, but $HOME is not set; write the whole path", path);
    return home + path.substr(name.size());
  }
  return path;
}

}  // namespace temper
