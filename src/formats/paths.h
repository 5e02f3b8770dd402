#pragma once
#include <string>
#include <vector>

namespace temper::formats {

// What the user named, as files: a path with * ? or [...] stands for what matches, a folder for the data
// files in it (by their endings, without its sub-folders and names that begin with . or _), or else for its
// text files, each sorted by name; any other path for itself. Files named twice stay twice. A path that
// stands for nothing is an error that names what is there.
std::vector<std::string> expand_paths(const std::vector<std::string>& paths);

}  // namespace temper::formats
