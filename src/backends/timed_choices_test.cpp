#include "backends/timed_choices.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/files.h"

namespace temper::backends {
namespace {

constexpr const char* kHere = "GPU A, library 1";

class TimedChoicesTest : public testing::Test {
 protected:
  // What a run says on its way.
  template <class F>
  std::string warnings(F run) {
    testing::internal::CaptureStderr();
    run();
    return testing::internal::GetCapturedStderr();
  }

  TemporaryDirectory folder_;
  const std::string cache_ = folder_ / "cache.json", run_ = folder_ / "algorithms.json";
};

TEST_F(TimedChoicesTest, ARunGoesOnWithItsOwnWhateverBecameOfTheCache) {
  {
    TimedChoices first(cache_);
    first.set_run(run_, false);
    EXPECT_FALSE(first.recall(kHere, "4x4"));
    first.remember(kHere, "4x4", "one");
  }
  TimedChoices(cache_).remember(kHere, "4x4", "two");  // another process, another moment
  EXPECT_EQ(TimedChoices(cache_).recall(kHere, "4x4"), "two");
  TimedChoices again(cache_);
  again.set_run(run_, true);
  EXPECT_EQ(again.recall(kHere, "4x4"), "one");
  remove_all(cache_);
  TimedChoices later(cache_);
  later.set_run(run_, true);
  EXPECT_EQ(later.recall(kHere, "4x4"), "one");
}

TEST_F(TimedChoicesTest, WhatComesFromTheCacheBecomesTheRuns) {
  TimedChoices(cache_).remember(kHere, "4x4", "one");
  TimedChoices first(cache_);
  first.set_run(run_, false);
  EXPECT_EQ(first.recall(kHere, "4x4"), "one");
  remove_all(cache_);
  TimedChoices again(cache_);
  again.set_run(run_, true);
  EXPECT_EQ(again.recall(kHere, "4x4"), "one");
}

TEST_F(TimedChoicesTest, ANewRunForgetsThatOfTheFolder) {
  TimedChoices first(cache_);
  first.set_run(run_, false);
  first.remember(kHere, "4x4", "one");
  remove_all(cache_);
  TimedChoices other(cache_);
  other.set_run(run_, false);
  EXPECT_FALSE(other.recall(kHere, "4x4"));
}

TEST_F(TimedChoicesTest, ARunThatGoesOnElsewhereIsReportedOnce) {
  TimedChoices first(cache_);
  first.set_run(run_, false);
  first.remember(kHere, "4x4", "one");
  TimedChoices again(cache_);
  again.set_run(run_, true);
  EXPECT_EQ(warnings([&] { again.recall(kHere, "8x8"); }), "");  // a new shape, in the same place
  const std::string said = warnings([&] {
    EXPECT_FALSE(again.recall("GPU B, library 1", "4x4"));
    EXPECT_FALSE(again.recall("GPU B, library 1", "8x8"));
  });
  EXPECT_NE(said.find("may differ in their last bits from now on: its matrix multiplications were timed on "
                      "GPU A, library 1, and this device is GPU B, library 1"),
            std::string::npos)
      << said;
  EXPECT_EQ(said.find("may differ"), said.rfind("may differ"));
  // From here on it has choices of both places.
  again.remember("GPU B, library 1", "4x4", "two");
  TimedChoices back(cache_);
  back.set_run(run_, true);
  EXPECT_EQ(warnings([&] { EXPECT_EQ(back.recall(kHere, "4x4"), "one"); }), "");
  EXPECT_EQ(back.recall("GPU B, library 1", "4x4"), "two");
}

TEST_F(TimedChoicesTest, AnAlgorithmThatDoesNotRunIsReported) {
  TimedChoices first(cache_);
  first.set_run(run_, false);
  first.remember(kHere, "4x4", "one");
  TimedChoices again(cache_);
  again.set_run(run_, true);
  const std::string said = warnings([&] { again.refuse(kHere, "4x4", "does not run any more"); });
  EXPECT_NE(said.find("last bits from now on: its algorithm for 4x4 does not run any more"),
            std::string::npos)
      << said;
  again.remember(kHere, "4x4", "two");
  EXPECT_EQ(again.recall(kHere, "4x4"), "two");
  EXPECT_EQ(warnings([&] { TimedChoices(cache_).refuse(kHere, "4x4", "does not run any more"); }), "");
}

TEST_F(TimedChoicesTest, ARunThatIsOnlyTriedKeepsNothing) {
  TimedChoices first(cache_);
  first.set_run(run_, false);
  first.remember(kHere, "4x4", "one");
  TimedChoices(cache_).remember(kHere, "4x4", "two");
  const std::string cache = read_file(cache_), run = read_file(run_);

  TimedChoices tried(cache_);
  tried.set_run(run_, true, KeepChoices::kNo);
  EXPECT_EQ(tried.recall(kHere, "4x4"), "one");  // the run's own choice
  tried.remember(kHere, "8x8", "three");
  EXPECT_EQ(tried.recall(kHere, "8x8"), "three");
  EXPECT_EQ(read_file(cache_), cache);
  EXPECT_EQ(read_file(run_), run);
  tried.set_run("", false);
  EXPECT_FALSE(tried.recall(kHere, "8x8"));
  tried.remember(kHere, "8x8", "four");
  EXPECT_EQ(TimedChoices(cache_).recall(kHere, "8x8"), "four");

  tried.set_run(folder_ / "new.json", false, KeepChoices::kNo);
  EXPECT_EQ(tried.recall(kHere, "8x8"), "four");
  EXPECT_FALSE(exists(folder_ / "new.json"));
}

TEST_F(TimedChoicesTest, TwoProcessesLoseNothing) {
  constexpr int kEntries = 50;
  std::vector<pid_t> children;
  for (const char* name : {"a", "b"}) {
    const pid_t child = ::fork();
    if (child == 0) {
      TimedChoices choices(cache_);
      for (int i = 0; i < kEntries; ++i) choices.remember(kHere, fmt::format("{}{}", name, i), name);
      ::_exit(0);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) ::waitpid(child, nullptr, 0);
  TimedChoices all(cache_);
  for (const char* name : {"a", "b"})
    for (int i = 0; i < kEntries; ++i) EXPECT_EQ(all.recall(kHere, fmt::format("{}{}", name, i)), name);
}

TEST_F(TimedChoicesTest, ChangesWithTheRun) {
  TimedChoices choices(cache_);
  const int64_t before = choices.generation();
  choices.set_run(run_, false);
  EXPECT_NE(choices.generation(), before);
}

}  // namespace
}  // namespace temper::backends
