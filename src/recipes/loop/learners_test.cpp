#include "recipes/loop/learners.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "recipes/loop/adapters_run_test_support.h"
#include "tests/support/errors.h"

namespace temper::recipes {
namespace {

using Names = std::vector<std::string>;

std::function<void(Learner&)> refuses(const std::string& name, ErrorKind kind = ErrorKind::kInput) {
  return [name, kind](const Learner& learner) {
    if (learner.name() == name) throw Error("[data] row 3 is empty", kind);
  };
}

TEST(Learners, AreTheAdaptersOrTheModel) {
  const AdaptersRun adapters({"a", "b"}), model({});
  EXPECT_EQ(adapters.names(), (Names{"a", "b"}));
  EXPECT_TRUE(adapters.learners.are_adapters());
  EXPECT_EQ(model.names(), Names{""});
  EXPECT_FALSE(model.learners.are_adapters());
  EXPECT_EQ(adapters.learners.checkpoint_bytes() % 2, 0);
  EXPECT_LT(adapters.learners.disk_bytes(false), adapters.learners.disk_bytes(true));
}

TEST(Learners, AnAdapterThatCannotStartIsRemovedAndReportedAtTheEnd) {
  AdaptersRun run({"a", "b", "c"});
  run.learners.start_each(refuses("b"));
  EXPECT_EQ(run.names(), (Names{"a", "c"}));
  const std::string lines = error_of([&] { run.learners.check_all_completed(); });
  expect_has(lines, "[adapters] 1 of 3 stopped early, the others are done:\n  b did not start: ");
  expect_has(lines, "[adapters.b] [data] row 3 is empty");
}

TEST(Learners, NoOtherErrorIsPassedOver) {
  AdaptersRun run({"a", "b"}), alone({"a"});
  const auto error_at_start = [](AdaptersRun& of, ErrorKind kind) {
    return error_of([&] { of.learners.start_each(refuses("a", kind)); }, kind);
  };
  EXPECT_EQ(error_at_start(run, ErrorKind::kResources), "[adapters.a] [data] row 3 is empty");
  EXPECT_EQ(error_at_start(alone, ErrorKind::kInput), "[adapters.a] [data] row 3 is empty");
  EXPECT_EQ(run.names(), (Names{"a", "b"}));
}

TEST(Learners, AreDoneWhenAllAreStoppedOrTrained) {
  AdaptersRun run({"a", "b"});
  EXPECT_FALSE(run.learners.all_done());
  run.learners.front().stop("row 3 is empty", true);
  EXPECT_FALSE(run.learners.all_done());
  (*(run.learners.end() - 1))->stop("the loss is NaN", false);
  EXPECT_TRUE(run.learners.all_done());
  EXPECT_TRUE(run.learners.unsaved().empty());
  expect_has(
      error_of([&] { run.learners.check_all_completed(); }),
      "2 of 2 stopped early, the others are done:\n  a after step 0: row 3 is empty\n  b after step 0: "
      "the loss is NaN\n");
}

}  // namespace
}  // namespace temper::recipes
