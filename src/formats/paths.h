#pragma once
#include <string>
#include <vector>

namespace temper::formats {

// What the user named, as files: a path with * ? or [...] means what matches, a folder means the data
// files in it (by their endings, without its sub-folders and names that begin with . or _), or else for its
// text files, each sorted by name; any other path means itself. Files named twice stay twice. A path without
// any file is an error that names what is there.
std::vector<std::string> expand_paths(const std::vector<std::string>& paths);

}  // namespace temper::formats
