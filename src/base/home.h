#pragma once
#include <string>

namespace temper {

// A path that begins with ~, $HOME or ${HOME} (alone or before a '/') with the user's folder in its place;
// any other as it is. An Error where the folder is asked for and $HOME is not set.
std::string expand_home(const std::string& path);

}  // namespace temper
