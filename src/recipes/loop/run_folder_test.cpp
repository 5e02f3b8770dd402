#include "recipes/loop/run_folder.h"

#include <gtest/gtest.h>

#include "base/log.h"
#include "recipes/loop/adapters_run_test_support.h"
#include "tests/support/errors.h"

namespace temper::recipes {
namespace {

TEST(RunFolder, KeepsWhatIsLoggedFromItsConstructionOn) {
  const AdaptersRun run({});
  RunFolder folder(run.output(), "recipe: sft\n");
  log_quietly("before the folder is there");
  EXPECT_FALSE(is_directory(run.output()));
  folder.open(run.setup.config);
  log_quietly("after");
  const std::string console = read_file(folder.files().console());
  EXPECT_LT(console.find("before the folder is there\n"), console.find("after\n"));
  EXPECT_NE(console.find("after\n"), std::string::npos);
}

TEST(RunFolder, OfANewRunHasItsConfiguration) {
  const AdaptersRun run({"a"});
  RunFolder folder(run.output(), "recipe: sft\n");
  folder.open(run.setup.config);
  folder.open_learners(run.setup.config, run.learners);
  expect_has(read_file(folder.files().config()), "recipe: sft\n");
}

}  // namespace
}  // namespace temper::recipes
