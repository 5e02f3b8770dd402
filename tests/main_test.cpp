#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include <sys/wait.h>

namespace {

// What the program says of a suite that is disabled, run alone: its code as ctest sees it
// (cmake/suites.cmake).
int code_of(const std::string& tests) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  const std::string command =
      "'" + self + "' --gtest_also_run_disabled_tests --gtest_filter='" + tests + "' >/dev/null 2>&1";
  const int status = std::system(command.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(CodesOfSuites, SayWhetherTestsFailedOrWereSkipped) {
  EXPECT_EQ(code_of("DISABLED_Specimens.Passes"), 0);
  EXPECT_EQ(code_of("DISABLED_Specimens.Skips"), 77);
  EXPECT_EQ(code_of("DISABLED_Specimens.Skips:DISABLED_Specimens.Passes"), 0);
  EXPECT_EQ(code_of("DISABLED_Specimens.Fails"), 1);
  EXPECT_EQ(code_of("DISABLED_Specimens.Skips:DISABLED_Specimens.Fails"), 1);
  EXPECT_EQ(code_of("DISABLED_SpecimenThatCannotBegin.*"), 1);
}

TEST(DISABLED_Specimens, Passes) {}
TEST(DISABLED_Specimens, Skips) { GTEST_SKIP() << "a specimen"; }
TEST(DISABLED_Specimens, Fails) { FAIL() << "a specimen"; }

class DISABLED_SpecimenThatCannotBegin : public testing::Test {
 protected:
  static void SetUpTestSuite() { FAIL() << "a specimen"; }
};
TEST_F(DISABLED_SpecimenThatCannotBegin, IsNotSkipped) {}

}  // namespace
