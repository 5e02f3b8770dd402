#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "base/processes/child_guard.h"
#include "startup.h"
#include "tests/support/rank_bodies.h"

namespace {

constexpr int kAllSkipped = 77;  // SKIP_RETURN_CODE of cmake/suites.cmake

// GoogleTest calls the tests of a suite whose SetUpTestSuite has failed "skipped", and ctest would count them
// among those that passed: the program ends instead.
class FailedSuitesEnd : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo&) override { in_test_ = true; }
  void OnTestEnd(const testing::TestInfo&) override { in_test_ = false; }
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed() || in_test_) return;
    std::printf("failed outside of a test\n");
    std::fflush(nullptr);
    std::_Exit(1);
  }

  bool in_test_ = false;
};

}  // namespace

int main(int argc, char** argv) {
  temper::serve_as_guard(argc, argv);
  temper::register_everything();
  if (const auto code = temper::be_rank(argc, argv)) return *code;
  testing::InitGoogleTest(&argc, argv);
  testing::UnitTest::GetInstance()->listeners().Append(new FailedSuitesEnd);
  const int failed = RUN_ALL_TESTS();
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  const bool skipped = all.skipped_test_count() > 0 && all.successful_test_count() == 0;
  return failed == 0 && skipped ? kAllSkipped : failed;
}
