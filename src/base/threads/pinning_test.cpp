#include "base/threads/pinning.h"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "base/error.h"
#include "base/threads/threads.h"

namespace temper {
namespace {

class PinningTest : public testing::Test {
 protected:
  void SetUp() override { unsetenv("OMP_PROC_BIND"); }
  void TearDown() override {
    pin_threads(Pinning::kOff);
    set_num_threads(before_);
  }
  static std::vector<int> core(size_t thread) { return {usable_cores()[thread % usable_cores().size()]}; }
  static std::vector<int> all_cores() {
    std::vector<int> cores = usable_cores();
    std::sort(cores.begin(), cores.end());
    return cores;
  }
  static int count_of_this_thread() {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : -1;
  }
  int before_ = num_threads();
};

TEST_F(PinningTest, GivesEachThreadACore) {
  set_num_threads(3);
  EXPECT_TRUE(pin_threads(Pinning::kOn));
  EXPECT_EQ(cores_of_threads(), (std::vector<std::vector<int>>{core(0), core(1), core(2)}));
  set_num_threads(1);
  set_num_threads(4);  // its new threads as well
  EXPECT_EQ(cores_of_threads(), (std::vector<std::vector<int>>{core(0), core(1), core(2), core(3)}));
  EXPECT_FALSE(pin_threads(Pinning::kOff));
  EXPECT_EQ(cores_of_threads(), std::vector(4, all_cores()));
}

TEST_F(PinningTest, AutoPinsWhereEveryCoreHasAThread) {
  const auto cores = static_cast<int>(usable_cores().size());
  set_num_threads(cores);
  EXPECT_TRUE(pin_threads(Pinning::kAuto));
  set_num_threads(cores + 1);
  EXPECT_FALSE(pin_threads(Pinning::kAuto));
  EXPECT_EQ(cores_of_threads()[0], all_cores());
}

TEST_F(PinningTest, LeavesWhatTheUserBoundAlone) {
  setenv("OMP_PROC_BIND", "false", 1);
  EXPECT_FALSE(pin_threads(Pinning::kOn));
  EXPECT_EQ(cores_of_threads()[0], all_cores());
  unsetenv("OMP_PROC_BIND");
}

TEST_F(PinningTest, OtherThreadsLeaveTheCore) {
  pin_threads(Pinning::kOn);
  std::thread([] {
    EXPECT_EQ(count_of_this_thread(), 1);
    leave_core();
    EXPECT_EQ(static_cast<size_t>(count_of_this_thread()), usable_cores().size());
  }).join();
}

TEST(Pinning, TakesPhysicalCoresFirst) {
  const auto siblings = [](int core) { return std::to_string(core / 2); };
  EXPECT_EQ(in_order_of_use({0, 1, 2, 3, 5}, siblings), (std::vector{0, 2, 5, 1, 3}));
}

// A container may forbid the call: on is an error then, auto does without.
TEST(PinningDeathTest, SaysWhereThereIsNoAffinity) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto pin_without = [] {
    unsetenv("OMP_PROC_BIND");
    sock_filter code[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sched_setaffinity, 0, 1),
                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    const sock_fprog program{4, code};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) std::exit(3);
    set_num_threads(static_cast<int>(usable_cores().size()));
    if (pin_threads(Pinning::kAuto)) std::exit(3);
    try {
      pin_threads(Pinning::kOn);
    } catch (const Error& error) {
      std::fputs(error.what(), stderr);
      std::exit(static_cast<int>(error.kind()));
    }
    std::exit(3);
  };
  EXPECT_EXIT(pin_without(), testing::ExitedWithCode(4),
              "train.pin_threads. threads cannot be pinned to cores: Operation not permitted; use off");
}

}  // namespace
}  // namespace temper
