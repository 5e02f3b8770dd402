#include "recipes/parts/output.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "base/files.h"
#include "tests/support/errors.h"

namespace temper::recipes {
namespace {

TEST(Output, FoldersOfOthersAreRefused) {
  const auto refused = [](const std::string& folder) { return error_of([&] { check_output(folder); }); };
  for (const char* folder :
       {"/", "//", "/etc", "/etc/", "/usr/../usr", "/proc", "/dev", "/home", "/root", "/tmp"})
    expect_has(refused(folder), std::string("[output] '") + folder + "' is a folder of the system; expected");
  const TemporaryDirectory folder;
  std::filesystem::create_directory_symlink("/etc", folder / "link");
  expect_has(refused(folder / "link"), "is a folder of the system");
  EXPECT_NO_THROW(check_output(folder.path()));
  EXPECT_NO_THROW(check_output("/home/someone/../../tmp/run"));
}

TEST(Output, AHomeFolderIsNotARuns) {
  const TemporaryDirectory folder;
  const std::string before = std::getenv("HOME") ? std::getenv("HOME") : "";
  ::setenv("HOME", folder.path().c_str(), 1);
  expect_has(error_of([&] { check_output(folder.path()); }),
             "is a home folder; expected a folder for this run alone");
  EXPECT_NO_THROW(check_output(folder / "run"));
  before.empty() ? ::unsetenv("HOME") : ::setenv("HOME", before.c_str(), 1);
}

// A run's own folder may be kept in a repository.
TEST(Output, TheRootOfARepositoryIsNotARuns) {
  const TemporaryDirectory folder, other;
  make_directories(folder / ".git");
  make_directories(other / ".git");
  const std::string before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  expect_has(error_of([] { check_output("."); }), "[output] '.' is the root of a repository");
  EXPECT_NO_THROW(check_output("run"));
  EXPECT_NO_THROW(check_output(other.path())) << "one that was made for results";
  for (const char* file : {"config.yaml", "console.log"}) write_file(folder / file, "");
  EXPECT_NO_THROW(check_output("."));
  std::filesystem::current_path(before);
}

}  // namespace
}  // namespace temper::recipes
