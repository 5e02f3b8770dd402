#include "formats/paths.h"

#include <glob.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>

#include "base/error.h"
#include "base/files.h"
#include "base/hub_name.h"
#include "base/text.h"
#include "formats/endings.h"

namespace temper::formats {
namespace {

constexpr size_t kShown = 8;

enum class Kind { kOther, kData, kText };

Kind kind_of(std::string_view name) {
  constexpr std::array kEndings = {".jsonl", ".ndjson", ".json", ".parquet", ".csv", ".tsv"};
  if (name.starts_with('.') || name.starts_with('_')) return Kind::kOther;
  const std::string ending = ending_of(name);
  if (ending == ".txt") return Kind::kText;
  const bool data = std::find(kEndings.begin(), kEndings.end(), ending) != kEndings.end();
  return data ? Kind::kData : Kind::kOther;
}

std::string describe(const std::string& folder, const std::vector<std::string>& names) {
  if (names.empty()) return fmt::format("{} is empty", folder);
  const std::vector<std::string> shown(names.begin(), names.begin() + std::min(names.size(), kShown));
  return fmt::format("{} holds {}{}", folder, join(shown), names.size() > kShown ? ", …" : "");
}

[[noreturn]] void fail_nothing(const std::string& path, std::string_view problem) {
  std::string folder = parent_path(path);
  while (!is_directory(folder)) folder = parent_path(folder);
  const std::vector<std::string> names = list_directory(folder);
  const std::string nearest = folder == parent_path(path) ? nearest_name(file_name(path), names) : "";
  if (!nearest.empty()) fail("[{}] {}; did you mean {}?", path, problem, join_path(folder, nearest));
  fail("[{}] {}; {}", path, problem, describe(folder, names));
}

void add_folder(const std::string& folder, std::vector<std::string>& files) {
  const std::vector<std::string> names = list_directory(folder);
  std::vector<std::string> data, texts;
  for (const std::string& name : names) {
    const Kind kind = kind_of(name);
    if (kind == Kind::kOther || is_directory(join_path(folder, name))) continue;
    (kind == Kind::kData ? data : texts).push_back(join_path(folder, name));
  }
  if (data.empty() && texts.empty())
    fail(
        "[{}] no .jsonl, .json, .parquet, .csv, .tsv or .txt file (or .gz or .zst of one) in this folder; {}",
        folder, describe(folder, names));
  const std::vector<std::string>& found = data.empty() ? texts : data;
  files.insert(files.end(), found.begin(), found.end());
}

// A folder that is not there has no matches; one that may not be read may have some.
int is_unreadable(const char*, int error) { return error != ENOENT && error != ENOTDIR; }

void add_matches(const std::string& pattern, std::vector<std::string>& files) {
  if (pattern.find("**") != std::string::npos)
    fail("[{}] ** is not supported; name each level of folders, as in data/*/*.jsonl", pattern);
  glob_t found{};
  const int status = ::glob(pattern.c_str(), 0, is_unreadable, &found);
  std::vector<std::string> matches(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  if (status == GLOB_NOSPACE) fail_resources("[{}] no memory for the files that match", pattern);
  if (status == GLOB_ABORTED) fail("[{}] cannot list one of these folders", pattern);
  std::erase_if(matches, [](const std::string& match) { return is_directory(match); });
  if (matches.empty()) fail_nothing(pattern, "no file matches");
  std::sort(matches.begin(), matches.end());
  files.insert(files.end(), matches.begin(), matches.end());
}

}  // namespace

std::vector<std::string> expand_paths(const std::vector<std::string>& paths) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    if (is_directory(path))
      add_folder(path, files);
    else if (exists(path))
      files.push_back(path);
    else if (path.find_first_of("*?[") != std::string::npos)
      add_matches(path, files);
    else if (const std::string advice = hub_advice(path, "data set");
             !advice.empty() && kind_of(file_name(path)) == Kind::kOther)
      fail("[{}] no such file; {}", path, advice);
    else
      fail_nothing(path, "no such file");
  }
  return files;
}

}  // namespace temper::formats
