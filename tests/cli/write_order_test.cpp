// A name always belongs to complete files, also after a loss of power: the data are on the disk before the
// file gets its name, and the name itself after that.
#include <algorithm>

#include "tests/cli/cli_fixture.h"

namespace temper {
namespace {

struct FileCall {
  std::string call, path;  // see kill_at.c
};
using Calls = std::vector<FileCall>;

class WriteOrder : public Cli {
 protected:
  // What a command does with files whose names contain `part`.
  static Calls calls_of(const std::string& part, const std::string& arguments) {
    const std::string file = folder() + "/calls";
    EXPECT_EQ(std::system(fmt::format("LD_PRELOAD={} ASAN_OPTIONS=verify_asan_link_order=0 CALLS_FILE={} "
                                      "CALLS_OF={} {} {} 2>/dev/null",
                                      kill_library(), file, part, TEMPER_BINARY, arguments)
                              .c_str()),
              0);
    Calls calls;
    const std::string text = read_file(file);
    for (size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
      const size_t space = text.find(' ', begin);
      calls.push_back({text.substr(begin, space - begin), text.substr(space + 1, end - space - 1)});
    }
    return calls;
  }
};

// Whether `path` is synced in calls [first, last).
bool is_synced(const Calls& calls, size_t first, size_t last, const std::string& path) {
  return std::any_of(calls.begin() + static_cast<std::ptrdiff_t>(first),
                     calls.begin() + static_cast<std::ptrdiff_t>(last),
                     [&](const FileCall& each) { return each.call == "fsync" && each.path == path; });
}

// Of the file or folder that call `at` renames.
void expect_on_disk_before(const Calls& calls, size_t at) {
  const std::string& renamed = calls[at].path;
  for (size_t i = 0; i < at; ++i) {
    const auto& [call, path] = calls[i];
    const bool inside = path.starts_with(renamed + "/");
    if (call != "write" || (!inside && path != renamed)) continue;
    EXPECT_TRUE(is_synced(calls, i, at, path)) << path << " is renamed before it is synced";
    if (!inside) continue;
    EXPECT_TRUE(is_synced(calls, i, at, renamed)) << renamed << " is renamed before its names are synced";
  }
}

void expect_name_on_disk_behind(const Calls& calls, size_t at) {
  size_t end = at + 1;
  while (end < calls.size() && calls[end].call != "rename") ++end;
  EXPECT_TRUE(is_synced(calls, at, end, parent_path(calls[at].path)))
      << "the folder of " << calls[at].path << " is not synced behind its renaming";
}

TEST_F(WriteOrder, ContentIsOnTheDiskBeforeItsNameAndTheNameBehindIt) {
  const std::string out = folder() + "/ordered";
  const Calls calls = calls_of(out, "train " + yaml() + " --output " + out + " --checkpoint.async false");
  for (const char* const part : {"/.tmp-step-000005", "/.tmp-model", "/summary.json.tmp-"})
    EXPECT_TRUE(std::any_of(calls.begin(), calls.end(), [&](const FileCall& each) {
      return each.call == "rename" && each.path.find(part) != std::string::npos;
    })) << part;
  for (size_t at = 0; at < calls.size(); ++at) {
    if (calls[at].call != "rename") continue;
    expect_on_disk_before(calls, at);
    expect_name_on_disk_behind(calls, at);
  }
}

}  // namespace
}  // namespace temper
