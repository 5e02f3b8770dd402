#include "base/signals/stop_signals.h"

#include <gtest/gtest.h>

#include <array>
#include <csignal>
#include <stdexcept>

namespace temper {
namespace {

volatile std::sig_atomic_t seen_by_others = 0;
void note(int) { seen_by_others = seen_by_others + 1; }

class Signals : public testing::Test {
 protected:
  void SetUp() override {
    seen_by_others = 0;
    struct sigaction action {};
    action.sa_handler = note;
    for (size_t i = 0; i < kHandled.size(); ++i) ::sigaction(kHandled[i], &action, &before_[i]);
  }
  void TearDown() override {
    for (size_t i = 0; i < kHandled.size(); ++i) ::sigaction(kHandled[i], &before_[i], nullptr);
  }
  static constexpr std::array<int, 2> kHandled{SIGINT, SIGTERM};
  std::array<struct sigaction, 2> before_{};
};

TEST_F(Signals, AreHandledAsBeforeWhenARunEnds) {
  stack_t stack_before{}, stack_after{};
  ::sigaltstack(nullptr, &stack_before);
  for (int run = 1; run <= 2; ++run) {  // a second one in the same process, too
    for (const int signal : kHandled) {
      const StopSignals signals;
      EXPECT_FALSE(signals.requested());
      std::raise(signal);
      EXPECT_TRUE(signals.requested());
    }
    EXPECT_EQ(seen_by_others, 2 * (run - 1));
    for (const int signal : kHandled) std::raise(signal);
    EXPECT_EQ(seen_by_others, 2 * run);
  }
  ::sigaltstack(nullptr, &stack_after);
  EXPECT_EQ(stack_after.ss_sp, stack_before.ss_sp);
  EXPECT_EQ(stack_after.ss_flags, stack_before.ss_flags);
}

TEST_F(Signals, AreHandledAsBeforeWhenARunThrows) {
  try {
    const StopSignals signals;
    throw std::runtime_error("a step");
  } catch (const std::runtime_error&) {
    std::raise(SIGINT);
  }
  EXPECT_EQ(seen_by_others, 1);
}

TEST_F(Signals, ThatAreIgnoredStayIgnored) {
  std::signal(SIGTERM, SIG_IGN);
  { const StopSignals signals; }
  std::raise(SIGTERM);
}

}  // namespace
}  // namespace temper
