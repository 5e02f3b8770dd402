#include "base/processes/child.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/processes/child_guard.h"
#include "base/waited.h"

namespace temper {
namespace {

// Both ends close when a program is started, and neither is 0, 1 or 2, which are replaced in children.
class Pipe {
 public:
  Pipe() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0)
      fail_resources("a pipe cannot be made: {}", std::strerror(errno));
    for (size_t i = 0; i < 2; ++i) {
      ends_[i] = ends[i] > STDERR_FILENO ? ends[i] : ::fcntl(ends[i], F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
      if (ends_[i] != ends[i]) ::close(ends[i]);
    }
  }
  ~Pipe() {
    close(0);
    close(1);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  int reading() const { return ends_[0]; }
  int writing() const { return ends_[1]; }
  void close(size_t end) {
    if (ends_[end] >= 0) ::close(std::exchange(ends_[end], -1));
  }
  // The end is the caller's to close.
  int take(size_t end) {
    ::fcntl(ends_[end], F_SETFL, O_NONBLOCK);
    return std::exchange(ends_[end], -1);
  }

 private:
  std::array<int, 2> ends_{-1, -1};
};

constexpr double kSecondsToStart = 30;
constexpr double kSecondsToStop = 10;  // more than a guard takes

struct Plan {
  pid_t parent;
  char* const* words;
  int input, output, errors;
  int failure;  // gets errno when the program cannot be run
};

// In the child, where another thread of the parent may have held any lock: only calls that are safe in
// handlers of signals.
[[noreturn]] void become(const Plan& plan) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != plan.parent) ::_exit(1);
  struct sigaction by_default {};
  by_default.sa_handler = SIG_DFL;
  ::sigaction(SIGPIPE, &by_default, nullptr);
  ::sigaction(SIGXFSZ, &by_default, nullptr);
  if (::dup2(plan.input, STDIN_FILENO) >= 0 && ::dup2(plan.output, STDOUT_FILENO) >= 0 &&
      ::dup2(plan.errors, STDERR_FILENO) >= 0) {
    ::close_range(kGuardFailureFile + 1, ~0U, CLOSE_RANGE_CLOEXEC);
    if (plan.failure == kGuardFailureFile)
      ::fcntl(kGuardFailureFile, F_SETFD, 0);
    else
      ::dup2(plan.failure, kGuardFailureFile);
    sigset_t none;
    ::sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    ::execve("/proc/self/exe", plan.words, environ);
  }
  const int error = errno;
  [[maybe_unused]] const ssize_t written = ::write(plan.failure, &error, sizeof error);
  ::_exit(127);
}

int wait_for(pid_t process) {
  int status = 0;
  while (::waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

// What the child says of its failure; 0 when the program runs, as that closes the pipe. A child that is
// stopped before says nothing.
int failure_of(int reading) {
  Waited waited;
  for (pollfd said{reading, POLLIN, 0}; ::poll(&said, 1, 100) <= 0;)
    if (waited.seconds() > kSecondsToStart) return ETIME;
  int error = 0;
  ssize_t size = 0;
  do size = ::read(reading, &error, sizeof error);
  while (size < 0 && errno == EINTR);
  return size == sizeof error ? error : 0;
}

}  // namespace

Child::Child(const std::vector<std::string>& words) {
  Pipe input, output, errors, failure;
  const std::string parent = std::to_string(::getpid());
  std::vector<char*> arguments{const_cast<char*>(kGuardName), const_cast<char*>(parent.c_str())};
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const Plan plan{::getpid(),       arguments.data(), input.reading(),
                  output.writing(), errors.writing(), failure.writing()};
  process_ = ::fork();
  if (process_ == 0) become(plan);
  if (process_ < 0) fail_resources("'{}' cannot be started: {}", words[0], std::strerror(errno));
  failure.close(1);
  if (const int error = failure_of(failure.reading()); error != 0) {
    ::kill(process_, SIGKILL);
    wait_for(process_);
    fail_resources("'{}' cannot be started: {}", words[0], std::strerror(error));
  }
  input_ = input.take(1);
  output_ = output.take(0);
  errors_ = errors.take(0);
}

Child::~Child() { stop(); }

void Child::close_input() {
  if (input_ >= 0) ::close(std::exchange(input_, -1));
}

void Child::close_errors() {
  if (errors_ >= 0) ::close(std::exchange(errors_, -1));
}

std::optional<int> Child::ended() const {
  siginfo_t info{};
  // The process stays: until it is waited for, its number is that of no other one.
  if (process_ < 0 || ::waitid(P_PID, static_cast<id_t>(process_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid == 0)
    return std::nullopt;
  return info.si_code == CLD_EXITED ? info.si_status << 8 : info.si_status;
}

void Child::stop() {
  if (process_ < 0) return;
  ::kill(process_, guard_stop_signal());
  const double end = seconds_now() + kSecondsToStop;
  while (!ended() && seconds_now() < end) ::usleep(200);
  ::kill(process_, SIGKILL);
  wait_for(std::exchange(process_, -1));
  close_input();
  close_errors();
  ::close(std::exchange(output_, -1));
}

std::string describe_end(int status) {
  if (WIFEXITED(status)) return fmt::format("ended with exit code {}", WEXITSTATUS(status));
  return fmt::format("was ended by signal {} ({})", WTERMSIG(status), ::strsignal(WTERMSIG(status)));
}

std::string find_program(const std::string& name) {
  const auto may_run = [](const std::string& path) {
    struct stat info {};
    return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && ::access(path.c_str(), X_OK) == 0;
  };
  if (name.find('/') != std::string::npos) return may_run(name) ? name : "";
  const char* const path = std::getenv("PATH");
  std::string_view left = path != nullptr ? path : "";
  while (!left.empty() && !name.empty()) {
    const size_t end = std::min(left.find(':'), left.size());
    const std::string candidate = std::string(left.substr(0, end)) + "/" + name;
    if (may_run(candidate)) return candidate;
    left.remove_prefix(std::min(end + 1, left.size()));
  }
  return "";
}

}  // namespace temper
