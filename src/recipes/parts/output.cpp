#include "recipes/parts/output.h"

#include <pwd.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "base/files.h"
#include "base/parts/build.h"
#include "recipes/parts/run_files.h"

namespace temper::recipes {
namespace {

// Folders of the system, in which files of a run would be among those of others.
constexpr std::array kOfSystem = {
    "/",         "/bin",       "/boot",    "/dev",     "/etc",     "/home",      "/lib",
    "/lib64",    "/opt",       "/proc",    "/root",    "/run",     "/sbin",      "/sys",
    "/tmp",      "/usr",       "/var",     "/usr/bin", "/usr/lib", "/usr/local", "/usr/local/bin",
    "/usr/sbin", "/usr/share", "/var/lib", "/var/log", "/var/tmp", "/dev/shm"};

constexpr const char* kOfTheSystem = "a folder of the system";

bool is_run(const std::string& folder) {
  const RunFiles files{folder};
  return exists(files.config()) && exists(files.console());
}

// Of the user whose it is.
bool is_home(const std::filesystem::path& folder) {
  struct stat info {};
  if (::stat(folder.c_str(), &info) != 0) return false;
  const passwd* const owner = ::getpwuid(info.st_uid);
  return owner != nullptr && owner->pw_dir != nullptr && folder == owner->pw_dir;
}

// Whose the folder is, where it is not for the files of a run; empty otherwise.
std::string owner_of(const std::string& folder) {
  if (is_run(folder)) return "";  // of an older version, or put there by hand
  std::error_code ignored;
  const std::filesystem::path place = std::filesystem::weakly_canonical(folder, ignored);
  if (place.empty()) return "";  // the reason is found below
  const auto is_place = [&](const std::string& other) {
    return !other.empty() && std::filesystem::weakly_canonical(other, ignored) == place;
  };
  if (std::any_of(kOfSystem.begin(), kOfSystem.end(), is_place)) return kOfTheSystem;
  const char* home = std::getenv("HOME");
  if ((home != nullptr && is_place(home)) || is_home(place)) return "a home folder";
  // Of the current directory; another repository may be for results.
  const std::filesystem::path here = std::filesystem::current_path(ignored);
  const bool is_above =
      std::mismatch(place.begin(), place.end(), here.begin(), here.end()).first == place.end();
  return is_above && exists(join_path(place.string(), ".git")) ? "the root of a repository" : "";
}

}  // namespace

void check_output(const std::string& folder) {
  if (folder.empty()) fail("[output] is empty; expected the run's folder");
  if (const std::string owner = owner_of(folder); !owner.empty())
    fail("[output] '{}' is {}; expected a folder for this run alone, as in output: {}", folder, owner,
         owner == kOfTheSystem ? "runs/first" : join_path(folder, "runs/first"));
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
