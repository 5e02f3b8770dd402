#include "base/processes/child_guard.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace temper {
namespace {

constexpr double kSecondsToEnd = 5;  // for processes that the kernel cannot end at once

sigset_t awaited_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int signal : {SIGCHLD, guard_stop_signal()}) ::sigaddset(&set, signal);
  return set;
}

[[noreturn]] void run_program(char** words, pid_t guard) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != guard) ::_exit(1);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::execve(words[0], words, environ);
  const int error = errno;
  [[maybe_unused]] const ssize_t written = ::write(kGuardFailureFile, &error, sizeof error);
  ::_exit(127);
}

// The pipes are the program's alone: who reads them sees that it has closed them.
void leave_pipes() {
  ::close(kGuardFailureFile);
  const int nothing = ::open("/dev/null", O_RDWR);
  for (const int file : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    nothing >= 0 ? ::dup2(nothing, file) : ::close(file);
  if (nothing > STDERR_FILENO) ::close(nothing);
}

// The status of `program` where it is among those that have ended.
std::optional<int> reap(pid_t program, bool& has_children) {
  std::optional<int> found;
  int status = 0;
  pid_t process = 0;
  while ((process = ::waitpid(-1, &status, WNOHANG)) > 0)
    if (process == program) found = status;
  has_children = process == 0;
  return found;
}

// False where the kernel does not list them.
bool kill_children() {
  std::ifstream children("/proc/thread-self/children");
  if (!children) return false;
  for (pid_t process = 0; children >> process;) ::kill(process, SIGKILL);
  return true;
}

// Each that ends leaves its own to the guard, until there are none. The status of `program`, if it was there.
std::optional<int> kill_all(pid_t program) {
  ::kill(-program, SIGKILL);
  std::optional<int> found;
  bool has_children = true;
  for (const double end = seconds_now() + kSecondsToEnd; has_children && seconds_now() < end;) {
    const bool lists = kill_children();
    if (const auto status = reap(program, has_children)) found = status;
    if (!lists && found) break;  // the program's own group has got the signal
    if (has_children) ::usleep(500);
  }
  return found;
}

[[noreturn]] void end_as(int status) {
  if (WIFEXITED(status)) ::_exit(WEXITSTATUS(status));
  const rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  ::prctl(PR_SET_DUMPABLE, 0);  // whoever collects dumps through a pipe has one of the program
  const int signal = WTERMSIG(status);
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, signal);
  ::signal(signal, SIG_DFL);
  ::sigprocmask(SIG_UNBLOCK, &set, nullptr);
  ::kill(::getpid(), signal);
  ::_exit(128 + signal);
}

[[noreturn]] void guard(pid_t parent, char** words) {
  const sigset_t awaited = awaited_signals();
  sigset_t all;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  ::signal(SIGCHLD, SIG_DFL);
  ::prctl(PR_SET_NAME, kGuardName);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  ::prctl(PR_SET_PDEATHSIG, guard_stop_signal());
  if (::getppid() != parent) ::_exit(1);
  ::fcntl(kGuardFailureFile, F_SETFD, FD_CLOEXEC);
  const pid_t self = ::getpid(), program = ::fork();
  if (program == 0) run_program(words, self);
  if (program < 0) {
    const int error = errno;
    [[maybe_unused]] const ssize_t written = ::write(kGuardFailureFile, &error, sizeof error);
    ::_exit(1);
  }
  ::setpgid(program, program);
  leave_pipes();
  for (bool has_children = true;;) {
    const int signal = ::sigwaitinfo(&awaited, nullptr);
    if (signal < 0) continue;
    const std::optional<int> status = signal == SIGCHLD ? reap(program, has_children) : std::nullopt;
    if (signal == SIGCHLD && !status) continue;
    const std::optional<int> killed = kill_all(program);
    end_as(status ? *status : killed.value_or(SIGKILL));
  }
}

}  // namespace

void serve_as_guard(int argc, char** argv) {
  if (argc < 3 || std::string_view(argv[0]) != kGuardName) return;
  guard(static_cast<pid_t>(std::atoll(argv[1])), argv + 2);
}

}  // namespace temper
