#include "recipes/output.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>

#include "base/build.h"
#include "base/error.h"
#include "base/files.h"

namespace temper::recipes {

void check_output(const std::string& folder) {
  if (folder.empty()) fail("[output] is empty; expected the run's folder");
  std::string there = folder;
  while (there.size() > 1 && there.ends_with('/')) there.pop_back();
  while (!there.empty() && !exists(there)) {
    if (const std::string name = file_name(there); name.size() > NAME_MAX)
      fail(
          "[output] '{}' cannot be made: a name in it has {} bytes, and {} are allowed; choose a shorter one",
          folder, name.size(), NAME_MAX);
    there = parent_path(there);
  }
  if (there.empty()) there.push_back('.');
  if (!is_directory(there))
    fail("[output] '{}' cannot be made: {} is not a folder; choose another output", folder,
         there == folder ? "the existing path" : "'" + there + "'");
  if (::access(there.c_str(), W_OK | X_OK) != 0)
    fail("[output] '{}' cannot be {}: {}; choose another output", folder,
         there == folder ? "written to" : fmt::format("made in '{}'", there), std::strerror(errno));
  // Root may write everywhere, but /proc stores nothing.
  struct statvfs found {};
  if (::statvfs(there.c_str(), &found) == 0 && found.f_blocks == 0)
    fail("[output] '{}' is not writable: '{}' is a file system that stores nothing; choose another output",
         folder, there);
}

void write_config(const std::string& file, const std::string& resolved_yaml) {
  write_file(file, fmt::format("# temper {}\n{}", program_version(), resolved_yaml));
}

}  // namespace temper::recipes
