#include "collectives/rank_watch.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "collectives/launcher_line.h"
#include "tests/support/errors.h"
#include "tests/support/sanitizers.h"

namespace temper::collectives {
namespace {

constexpr RankDeadlines kSoon{0.3, 0.3, 0.3, 0.3};
volatile std::sig_atomic_t asked = 0;

// Processes that join as ranks of two.
class Ranks : public testing::Test {
 protected:
  void TearDown() override {
    for (const pid_t process : processes_) {
      ::kill(process, SIGKILL);
      ::waitpid(process, nullptr, 0);
    }
  }

  pid_t start_process(const std::function<void()>& act) {
    const pid_t process = ::fork();
    if (process == 0) {
      act();
      ::_exit(0);
    }
    processes_.push_back(process);
    return process;
  }
  pid_t start(const RankWatch& watch, int rank, const std::function<void()>& act) {
    return start_process([&] {
      ::setenv(kLauncherVariable, watch.name().c_str(), 1);
      ::setenv("OMPI_COMM_WORLD_RANK", std::to_string(rank).c_str(), 1);
      ::setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
      join_launcher();
      act();
    });
  }

  // The first trouble within `seconds`.
  static std::string trouble_of(RankWatch& watch, double seconds) {
    const double until = seconds_now() + seconds;
    while (seconds_now() < until) {
      watch.listen(0.02);
      if (const std::string trouble = watch.trouble(); !trouble.empty()) return trouble;
    }
    return "";
  }

  std::vector<pid_t> processes_;
};

void sleep_on() {
  for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
}
void be_ready() {
  notify_launcher_ready();
  sleep_on();
}

TEST_F(Ranks, ThatWorkAreNoTrouble) {
  RankWatch watch(2, kSoon);
  start(watch, 0, be_ready);
  start(watch, 1, be_ready);
  EXPECT_EQ(trouble_of(watch, 0.8), "");
  EXPECT_TRUE(watch.are_ready());
}

TEST_F(Ranks, ThatAreKilledAreNamed) {
  RankWatch watch(2, kSoon);
  start(watch, 0, be_ready);
  const pid_t killed = start(watch, 1, [] {
    notify_launcher_ready();
    ::raise(SIGKILL);
  });
  EXPECT_EQ(trouble_of(watch, 5), fmt::format("rank 1 (process {}) was lost", killed));
}

TEST_F(Ranks, ThatDoNotFindTheOthersAreNamed) {
  RankWatch watch(2, kSoon);
  start(watch, 0, be_ready);
  const pid_t stopped = start(watch, 1, [] { ::raise(SIGSTOP); });
  EXPECT_EQ(trouble_of(watch, 5),
            fmt::format("2 ranks did not find each other within 0 s: rank 1 (process {}), which is stopped",
                        stopped));
  EXPECT_FALSE(watch.are_ready());
}

TEST_F(Ranks, ThatAreStoppedAreNamed) {
  RankWatch watch(2, kSoon);
  start(watch, 0, be_ready);
  const auto stop = [] {
    notify_launcher_ready();
    ::raise(SIGSTOP);
  };
  const pid_t stopped = start(watch, 1, stop);
  EXPECT_EQ(trouble_of(watch, 5), fmt::format("rank 1 (process {}) is stopped", stopped));
  RankWatch all(2, kSoon);
  for (const int rank : {0, 1}) start(all, rank, stop);
  EXPECT_EQ(trouble_of(all, 1), "") << "a user has stopped them all";
}

TEST_F(Ranks, WhoseLauncherIsStoppedAreInTrouble) {
  const pid_t launcher = start_process([] { ::raise(SIGSTOP); });
  RankWatch watch(2, {5, 5, 5, 0.3});
  for (const int rank : {0, 1}) start(watch, rank, be_ready);
  watch.set_launcher(launcher);
  EXPECT_EQ(trouble_of(watch, 3), fmt::format("mpirun (process {}) is stopped", launcher));
  RankWatch done(2, {30, 30, 30, 0.3});
  for (const int rank : {0, 1})
    start(done, rank, [] {
      notify_launcher_ready();
      notify_launcher_end();
    });
  while (!done.are_ready() || !done.are_gone()) done.listen(0.02);
  done.set_launcher(launcher);
  EXPECT_EQ(trouble_of(done, 3), fmt::format("mpirun (process {}) is stopped", launcher));
}

// Where mpirun has not heard that they ended.
TEST_F(Ranks, ThatLookForEachOtherEndSoonWhenTheyAreAskedTo) {
  RankWatch watch(2, {30, 30, 30, 30, 0.5});
  start(watch, 0, sleep_on);
  start(watch, 1, [] { notify_launcher_end(); });
  EXPECT_EQ(trouble_of(watch, 0.8), "");
  watch.ask_to_stop();
  EXPECT_EQ(trouble_of(watch, 3), "mpirun did not end within 0 s of the request to stop");
}

TEST_F(Ranks, ThatNeverComeAreNamed) {
  RankWatch watch(2, kSoon);
  start(watch, 1, be_ready);
  expect_has(trouble_of(watch, 5), ": rank 0, which has not come");
}

TEST_F(Ranks, ThatDoNotEndBehindTheOthersAreNamed) {
  RankWatch watch(2, kSoon);
  const pid_t hangs = start(watch, 0, be_ready);
  start(watch, 1, [] {
    notify_launcher_ready();
    notify_launcher_end();
  });
  expect_has(trouble_of(watch, 5), fmt::format("rank 0 (process {}) does not end", hangs));
  RankWatch both(2, kSoon);  // which say so, and hang behind it
  for (const int rank : {0, 1})
    start(both, rank, [] {
      notify_launcher_ready();
      notify_launcher_end();
      sleep_on();
    });
  expect_has(trouble_of(both, 5), " does not end: a rank ended 0 s ago, and for 0 s no memory was freed");
}

// Memory takes time to go, up to a bound.
TEST_F(Ranks, ThatFreeMemoryEndStill) {
  if (kSanitizerTakesMemory) GTEST_SKIP() << "a sanitizer keeps freed memory";
  const auto frees = [] {
    constexpr size_t kPart = size_t{4} << 20;
    std::vector<std::string> memory(12, std::string(kPart, 'x'));
    notify_launcher_ready();
    notify_launcher_end();
    while (!memory.empty()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(250));
      memory.pop_back();
    }
    sleep_on();
  };
  RankWatch watch(1, {5, 5, 1.5, 5});
  start(watch, 0, frees);
  const double begun = seconds_now();
  expect_has(trouble_of(watch, 30), " no memory was freed");
  EXPECT_GT(seconds_now() - begun, 12 * 0.25);
  RankDeadlines bounded{5, 5, 1.5, 5};
  bounded.ends = 0.6;
  RankWatch hurried(1, bounded);
  start(hurried, 0, frees);
  const double again = seconds_now();
  expect_has(trouble_of(hurried, 30), " does not end: a rank ended 1 s ago");
  EXPECT_LT(seconds_now() - again, 12 * 0.25);
}

// Unless their launcher stays.
TEST_F(Ranks, ThatEndAreNoTrouble) {
  RankWatch watch(2, {5, 5, 1, 5});
  for (const int rank : {0, 1})
    start(watch, rank, [] {
      notify_launcher_ready();
      notify_launcher_end();
    });
  EXPECT_EQ(trouble_of(watch, 0.7), "");
  EXPECT_TRUE(watch.are_gone());
  EXPECT_EQ(trouble_of(watch, 5),
            "mpirun does not end: a rank ended 1 s ago, and for 1 s no memory was freed");
}

// Also one that comes when the others have been asked.
TEST_F(Ranks, AreAskedToStopOnce) {
  RankWatch watch(2, {30, 30, 30, 30});
  const auto end_when_asked_once = [] {
    struct sigaction action {};
    action.sa_handler = [](int) { asked = asked + 1; };
    ::sigaction(SIGUSR1, &action, nullptr);
    while (asked == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    ::_exit(10 + asked);
  };
  struct sigaction ignored {
  }, before{};
  ignored.sa_handler = SIG_IGN;
  ::sigaction(SIGUSR1, &ignored, &before);  // until a rank handles it
  const auto code_of = [&](pid_t process) {
    int status = 0;
    while (::waitpid(process, &status, WNOHANG) == 0) watch.listen(0.02);
    std::erase(processes_, process);
    return WEXITSTATUS(status);
  };
  const pid_t first = start(watch, 0, end_when_asked_once);
  for (int i = 0; i < 20; ++i) watch.listen(0.02);
  watch.ask_to_stop();
  watch.ask_to_stop();
  EXPECT_EQ(code_of(first), 11);
  struct sigaction counting {};
  counting.sa_handler = [](int) { asked = asked + 1; };
  ::sigaction(SIGUSR1, &counting, nullptr);  // before the next one comes
  EXPECT_EQ(code_of(start(watch, 1, end_when_asked_once)), 11);
  ::sigaction(SIGUSR1, &before, nullptr);
}

TEST_F(Ranks, ThatAreLeftAreKilled) {
  RankWatch watch(2, kSoon);
  const pid_t stopped = start(watch, 0, [] { ::raise(SIGSTOP); });
  for (int i = 0; i < 10; ++i) watch.listen(0.02);
  EXPECT_TRUE(watch.kill_all());
  int status = 0;
  ::waitpid(stopped, &status, 0);
  std::erase(processes_, stopped);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  for (int i = 0; i < 10; ++i) watch.listen(0.02);
  EXPECT_TRUE(watch.are_gone());
}

}  // namespace
}  // namespace temper::collectives
