#include "base/processes/child.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include "base/files.h"
#include "base/process.h"
#include "tests/support/errors.h"

namespace temper {
namespace {

std::vector<std::string> shell(const std::string& script) { return {"/bin/sh", "-c", script}; }

// What there is to read until the other side closes.
std::string all_of(int file) {
  std::string out;
  for (;;) {
    pollfd wait{file, POLLIN, 0};
    ::poll(&wait, 1, 10'000);
    char piece[256];
    const ssize_t size = ::read(file, piece, sizeof piece);
    if (size <= 0) return out;
    out.append(piece, static_cast<size_t>(size));
  }
}

std::string end_of(const Child& child) {
  for (int i = 0; i < 5000; ++i) {
    if (const auto status = child.ended()) return describe_end(*status);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return "runs";
}

// A zombie is gone: who waits for it, and when, is the system's business.
bool is_gone(pid_t process) {
  ProcessName name = this_process();
  name.number = process;
  name.started = 0;
  for (int i = 0; i < 5000; ++i) {
    if (state_of(name) == ProcessState::kGone) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

TEST(Child, Pipes) {
  Child child(shell("read a; echo got $a; echo bad >&2; exit 3"));
  EXPECT_FALSE(child.ended());
  ASSERT_EQ(::write(child.input(), "word\n", 5), 5);
  EXPECT_EQ(all_of(child.output()), "got word\n");
  EXPECT_EQ(all_of(child.errors()), "bad\n");
  EXPECT_EQ(end_of(child), "ended with exit code 3");
}

TEST(Child, EndsByASignal) {
  Child child(shell("kill -SEGV $$"));
  EXPECT_EQ(end_of(child), "was ended by signal 11 (Segmentation fault)");
}

TEST(Child, AtTheEndOfItsInput) {
  Child child({"/bin/cat"});
  child.close_input();
  EXPECT_EQ(end_of(child), "ended with exit code 0");
}

// The process whose number is the next line of output.
pid_t reported_by(const Child& child) {
  char piece[32] = {};
  pollfd wait{child.output(), POLLIN, 0};
  EXPECT_EQ(::poll(&wait, 1, 10'000), 1);
  EXPECT_GT(::read(child.output(), piece, sizeof piece - 1), 0);
  return static_cast<pid_t>(std::atoi(piece));
}

TEST(Child, StopsWithAllItHasStarted) {
  Child child(shell("sleep 1000 & echo $!; wait"));
  const pid_t grandchild = reported_by(child);
  ASSERT_EQ(::kill(grandchild, 0), 0);
  child.stop();
  EXPECT_TRUE(is_gone(grandchild));
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

// A daemon: a session of its own, and the process that started it is gone.
constexpr const char* kDaemon = "(setsid sh -c 'echo $$; exec sleep 1000' &)";

TEST(Child, StopsWithDaemonsThatItHasStarted) {
  Child child(shell(std::string(kDaemon) + "; exec sleep 1000"));
  const pid_t daemon = reported_by(child);
  ASSERT_EQ(::getsid(daemon), daemon);
  child.stop();
  EXPECT_TRUE(is_gone(daemon));
}

TEST(Child, DaemonsEndWhenItEndsByItself) {
  const Child child(shell(std::string(kDaemon) + "; read a; exit 4"));
  const pid_t daemon = reported_by(child);
  ASSERT_EQ(::kill(daemon, 0), 0);
  ASSERT_EQ(::write(child.input(), "\n", 1), 1);
  EXPECT_EQ(end_of(child), "ended with exit code 4");
  EXPECT_TRUE(is_gone(daemon));
}

TEST(Child, CannotBeStarted) {
  EXPECT_EQ(error_of([] { Child({"/no/such/program"}); }, ErrorKind::kResources),
            "'/no/such/program' cannot be started: No such file or directory");
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
}

TEST(Child, HasSignalsByDefaultAndNoOtherFiles) {
  const TemporaryDirectory folder;
  const FileWriter open_file(folder / "file");
  struct sigaction ignore {
  }, before{};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &ignore, &before);
  sigset_t blocked, mask;
  ::sigfillset(&blocked);
  ::pthread_sigmask(SIG_SETMASK, &blocked, &mask);
  {
    Child files({"/bin/ls", "/proc/self/fd"});
    EXPECT_EQ(all_of(files.output()), "0\n1\n2\n3\n") << "3 is the folder that is listed";
    Child child({"/bin/grep", "-E", "SigBlk|SigIgn", "/proc/self/status"});
    const std::string said = all_of(child.output());
    expect_has(said, "SigBlk:\t0000000000000000");
    // Bit 12 is SIGPIPE's.
    const size_t at = said.find("SigIgn:\t");
    ASSERT_NE(at, std::string::npos);
    EXPECT_EQ(std::stoull(said.substr(at + 8), nullptr, 16) & 0x1000, 0u) << said;
  }
  ::pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  ::sigaction(SIGPIPE, &before, nullptr);
}

// With what it has started.
TEST(Child, DiesWithAParentThatIsKilled) {
  int report[2];
  ASSERT_EQ(::pipe(report), 0);
  const pid_t parent = ::fork();
  if (parent == 0) {
    Child child(shell(std::string(kDaemon) + "; exec sleep 1000"));
    pollfd wait{child.output(), POLLIN, 0};
    ::poll(&wait, 1, 10'000);
    char piece[32];
    const ssize_t size = ::read(child.output(), piece, sizeof piece);
    if (size > 0 && ::write(report[1], piece, static_cast<size_t>(size)) > 0) ::kill(::getpid(), SIGKILL);
    ::_exit(1);
  }
  ::close(report[1]);
  char piece[32] = {};
  ASSERT_GT(::read(report[0], piece, sizeof piece - 1), 0);
  ::close(report[0]);
  ::waitpid(parent, nullptr, 0);
  EXPECT_TRUE(is_gone(static_cast<pid_t>(std::atoi(piece))));
}

TEST(Child, FindsPrograms) {
  EXPECT_EQ(find_program("/bin/sh"), "/bin/sh");
  EXPECT_TRUE(find_program("sh").ends_with("/sh"));
  EXPECT_EQ(find_program("no_such_program_anywhere"), "");
  EXPECT_EQ(find_program("/bin"), "");
  const TemporaryDirectory folder;
  write_file(folder / "text", "no program");
  EXPECT_EQ(find_program(folder / "text"), "");
  EXPECT_EQ(find_program(""), "");
}

}  // namespace
}  // namespace temper
