#include "checkpoints/files/staged_folder.h"

#include <gtest/gtest.h>

#include "base/files.h"
#include "base/process.h"
#include "tests/support/errors.h"

namespace temper::checkpoints {
namespace {

class Staged : public testing::Test {
 protected:
  // A staged folder of a process, with a file that says whose it is.
  std::string staged(const std::string& name, const ProcessName& process) {
    const std::string path = folder_ / fmt::format(".tmp-{}-{}", name, to_string(process));
    make_directories(path);
    write_file(join_path(path, "file"), name);
    return path;
  }
  static ProcessName gone() {
    ProcessName process = this_process();
    process.number = 999999999;
    return process;
  }
  static ProcessName elsewhere() {
    ProcessName process = this_process();
    process.host = "another_0000";
    return process;
  }
  int64_t sweep(const std::string& target = "out") {
    testing::internal::CaptureStderr();
    const int64_t handled =
        sweep_staged(folder_.path(), [&](std::string_view name) { return name == target; });
    printed_ = testing::internal::GetCapturedStderr();
    return handled;
  }
  TemporaryDirectory folder_;
  std::string printed_;
};

TEST_F(Staged, WhatOthersLeftBehindIsSwept) {
  EXPECT_EQ(sweep_staged(folder_ / "none", [](std::string_view) { return true; }), 0);
  const std::string own = staged("out", gone()), other = staged("model", gone()),
                    mine = staged("out", this_process());
  for (const char* name : {"out", ".tmp-out", ".tmp-out-nobody", "tmp-out-1"})
    make_directories(folder_ / name);
  EXPECT_EQ(sweep(), 2);
  EXPECT_FALSE(exists(own));
  EXPECT_FALSE(exists(mine)) << "this process did not finish it";
  EXPECT_TRUE(exists(other)) << "it has another target";
  for (const char* name : {"out", ".tmp-out", ".tmp-out-nobody", "tmp-out-1"})
    EXPECT_TRUE(exists(folder_ / name));
}

TEST_F(Staged, ThoseOfOtherHostsStay) {
  const std::string path = staged("out", elsewhere());
  EXPECT_EQ(sweep(), 0);
  expect_has(printed_, fmt::format("[{}] belongs to process {} of another host, another_0000: it stays", path,
                                   this_process().number));
  EXPECT_TRUE(exists(path));
}

// Where a file system cannot exchange names, a target is put aside first.
TEST_F(Staged, ATargetThatWasPutAsideIsPutBack) {
  staged("out.old", gone());
  EXPECT_EQ(sweep(), 1);
  EXPECT_EQ(read_file(folder_ / "out/file"), "out.old");
  expect_has(printed_, fmt::format("[{}] put back after an interrupted replacement", folder_ / "out"));
  // The new one had its name already.
  const std::string aside = staged("out.old", gone());
  write_file(folder_ / "out/file", "new");
  EXPECT_EQ(sweep(), 1);
  EXPECT_FALSE(exists(aside));
  EXPECT_EQ(read_file(folder_ / "out/file"), "new");
}

TEST_F(Staged, TakesTheTargetsPlaceOrLeavesNothing) {
  const std::string target = folder_ / "out";
  {
    const StagedFolder first(target + "//");
    write_file(first / "file", "first");
  }
  EXPECT_TRUE(list_directory(folder_.path()).empty());
  for (const char* text : {"second", "third"}) {
    StagedFolder folder(target);
    write_file(folder / "file", text);
    folder.commit();
    EXPECT_EQ(read_file(join_path(target, "file")), text);
    EXPECT_EQ(list_directory(folder_.path()), std::vector<std::string>{"out"});
  }
  {
    const StagedFolder taken_away(target);
    remove_all(taken_away.path());
  }
  EXPECT_EQ(list_directory(folder_.path()), std::vector<std::string>{"out"});
}

// What several processes write together stays until the owner commits it.
TEST_F(Staged, OthersLeaveItToTheOwner) {
  const std::string target = folder_ / "out", process = to_string(this_process());
  StagedFolder owner(target, {process, true});
  {
    const StagedFolder other(target, {process, false});
    EXPECT_EQ(other.path(), owner.path());
    write_file(other / "file", "of another");
  }
  owner.commit();
  EXPECT_EQ(read_file(folder_ / "out/file"), "of another");
}

TEST_F(Staged, TargetsThatCannotBeReplaced) {
  for (const std::string& target : {std::string("/"), folder_ / ".", folder_ / ".."})
    expect_has(error_of([&] { StagedFolder folder(target); }),
               "cannot be replaced as a whole; name a folder");
  write_file(folder_ / "file", "");
  expect_has(error_of([&] { StagedFolder folder(folder_ / "file"); }), "is a file, expected a folder");
}

TEST_F(Staged, FoldersAreDiscardedAtOnce) {
  const std::string path = folder_ / "out";
  make_directories(path);
  write_file(folder_ / "out/file", "");
  const std::string doomed = staged("out", this_process());
  discard_folder(path);
  EXPECT_FALSE(exists(path));
  EXPECT_FALSE(exists(doomed)) << "what was there of an earlier one is gone, too";
  EXPECT_EQ(without_slashes("/"), "/");
  EXPECT_EQ(without_slashes("a///"), "a");
}

TEST_F(Staged, DisksThatAreTooSmall) {
  EXPECT_EQ(error_of([&] { require_free_disk(folder_.path(), 1); }), "");
  expect_has(error_of([&] { require_free_disk(folder_.path(), int64_t{1} << 60); }, ErrorKind::kResources),
             fmt::format("[{}] needs ", folder_.path()));
}

}  // namespace
}  // namespace temper::checkpoints
