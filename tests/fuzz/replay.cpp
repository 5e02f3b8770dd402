// Runs a fuzz target on every file of a folder. A crash or an input that takes more than a second is a
// failure; so is an empty folder.
#include <fmt/core.h>

#include <algorithm>
#include <filesystem>

#include "base/clock.h"
#include "base/files.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: {} FOLDER\n", argv[0]);
    return 2;
  }
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1])) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  bool failed = paths.empty();
  for (const std::string& path : paths) {
    const std::string input = temper::read_file(path);
    fmt::print("{}\n", path);
    std::fflush(stdout);  // the last line names the input of a crash
    const double start = temper::seconds_now();
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
    const double seconds = temper::seconds_now() - start;
    if (seconds > 1) {
      fmt::print(stderr, "{}: took {:.1f} seconds, at most 1 is allowed\n", path, seconds);
      failed = true;
    }
  }
  fmt::print("{} inputs\n", paths.size());
  return failed ? 1 : 0;
}
