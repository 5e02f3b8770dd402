#include "base/process.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace temper {
namespace {

TEST(Process, NamesAreTextAndBack) {
  const ProcessName me = this_process();
  EXPECT_EQ(me.number, ::getpid());
  EXPECT_GT(me.started, 0);
  EXPECT_EQ(parse_process(to_string(me)), me);
  EXPECT_EQ(to_string(me).find_first_of("-/"), std::string::npos) << to_string(me);
  EXPECT_EQ(parse_process("12.34.0f3a99c1.node7.cluster_12ab")->host, "node7.cluster_12ab");
  for (const char* other : {"", "12", "12.34", "12.34.", "12.34.boot", "12.34.boot.", "a.34.boot.host",
                            "12.-4.boot.host", "12.3x.boot.host", "99999999999999999999.1.boot.host"})
    EXPECT_FALSE(parse_process(other)) << other;
}

TEST(Process, OnlyThoseOfThisHostAreKnown) {
  const ProcessName me = this_process();
  EXPECT_EQ(state_of(me), ProcessState::kRunning);
  ProcessName other = me;
  other.host = "elsewhere_0000";
  EXPECT_EQ(state_of(other), ProcessState::kUnknown);
  other.number = 999999999;
  EXPECT_EQ(state_of(other), ProcessState::kUnknown);
  other.host = me.host;
  EXPECT_EQ(state_of(other), ProcessState::kGone);
}

// A number that was given away again is another process.
TEST(Process, TheNumberAloneIsNotTheProcess) {
  ProcessName earlier = this_process();
  earlier.started -= 1;
  EXPECT_EQ(state_of(earlier), ProcessState::kGone);
  ProcessName before_boot = this_process();
  before_boot.boot = "00000000";
  EXPECT_EQ(state_of(before_boot), ProcessState::kGone);
}

TEST(Process, OneThatEndedIsGone) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    char byte = 0;
    ::_exit(::read(ends[0], &byte, 1) == 1 ? 0 : 1);
  }
  ProcessName name = this_process();
  name.number = child;
  name.started = 0;
  EXPECT_EQ(state_of(name), ProcessState::kRunning);
  ASSERT_EQ(::write(ends[1], "x", 1), 1);
  siginfo_t info{};
  ::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT);
  EXPECT_EQ(state_of(name), ProcessState::kGone) << "though its exit code was not read yet";
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(state_of(name), ProcessState::kGone);
  ::close(ends[0]);
  ::close(ends[1]);
}

}  // namespace
}  // namespace temper
