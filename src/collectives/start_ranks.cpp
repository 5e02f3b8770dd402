#include "collectives/start_ranks.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "base/clock.h"
#include "base/error.h"
#include "base/signals/end_signals.h"
#include "base/signals/stop_signals.h"
#include "collectives/launcher_line.h"

namespace temper::collectives {
namespace {

// The launcher's options: it prints nothing, since the ranks report errors themselves; there may be more
// ranks than cores, and the ranks divide the cores among themselves.
std::vector<std::string> launcher_command(int ranks, const std::vector<std::string>& arguments) {
  std::array<char, PATH_MAX> self{};
  if (::readlink("/proc/self/exe", self.data(), self.size() - 1) < 0)
    fail_resources("[--ranks] /proc/self/exe, which names this program, cannot be read: {}",
                   std::strerror(errno));
  std::vector<std::string> words{"mpirun", "--quiet", "--oversubscribe",     "--bind-to",
                                 "none",   "-n",      std::to_string(ranks), self.data()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return words;
}

[[noreturn]] void become_launcher(const std::vector<std::string>& words, const std::string& watch,
                                  pid_t parent) {
  // A terminal's signals are for this program, which passes them on as it wants them understood.
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(1);
  ::signal(SIGPIPE, SIG_DFL);
  ::setenv(kLauncherVariable, watch.c_str(), 1);
  if (const int nothing = ::open("/dev/null", O_RDONLY); nothing > STDIN_FILENO) {
    ::dup2(nothing, STDIN_FILENO);
    ::close(nothing);
  }
  if (::geteuid() == 0) {  // as in most containers
    ::setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    ::setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  }
  // Looking for fabrics that lead to other machines takes a fifth of a second; a user's choice stands.
  ::setenv("OMPI_MCA_pml", "^cm", 0);
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  ::_exit(127);
}

bool is_installed(const std::string& program) {
  const char* const path = std::getenv("PATH");
  if (path == nullptr) return false;
  std::string_view left = path;
  while (!left.empty()) {
    const size_t end = std::min(left.find(':'), left.size());
    if (::access((std::string(left.substr(0, end)) + "/" + program).c_str(), X_OK) == 0) return true;
    left.remove_prefix(std::min(end + 1, left.size()));
  }
  return false;
}

// The launcher of MPI, with all that it has started.
class Launcher {
 public:
  Launcher(int ranks, const std::vector<std::string>& arguments, const RankDeadlines& deadlines)
      : watch_(ranks, deadlines) {
    const std::vector<std::string> command = launcher_command(ranks, arguments);
    std::fflush(nullptr);
    const pid_t parent = ::getpid();
    process_ = ::fork();
    if (process_ < 0) fail_resources("[--ranks] mpirun cannot be started: {}", std::strerror(errno));
    if (process_ == 0) become_launcher(command, watch_.name(), parent);
    ::setpgid(process_, process_);  // as it does itself, unless it is stopped before
    watch_.set_launcher(process_);
  }
  ~Launcher() { end_all(); }
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  bool has_begun() const { return watch_.are_ready(); }
  // The exit code of the ranks; nothing where they were lost, for a reason that is printed.
  std::optional<int> wait() {
    for (;;) {
      watch_.listen(kSlice);
      if (stop_is_requested()) watch_.ask_to_stop();
      if (const auto status = reap()) {
        watch_.listen(0);
        return code_of(*status);
      }
      if (const std::string trouble = watch_.trouble(); !trouble.empty()) {
        std::fprintf(stderr, "temper: %s; all ranks are ended\n", trouble.c_str());
        return std::nullopt;
      }
    }
  }

 private:
  static constexpr double kSlice = 0.1, kOrderly = 2;  // seconds

  std::optional<int> reap() {
    int status = 0;
    if (process_ <= 0 || ::waitpid(process_, &status, WNOHANG) != process_) return std::nullopt;
    process_ = -1;
    return status;
  }

  std::optional<int> code_of(int status) const {
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (code <= 128) return code;
    std::fprintf(stderr, "temper: %s was ended by signal %d (%s), and all others with it\n",
                 watch_.lost().empty() ? "a rank" : watch_.lost().c_str(), code - 128,
                 ::strsignal(code - 128));
    return std::nullopt;
  }

  // Nothing that was started is left. MPI's launcher removes its own files when it is asked to end.
  void end_all() {
    const double until = seconds_now() + kOrderly;
    if (process_ > 0) ::kill(process_, SIGTERM);
    while (process_ > 0 && seconds_now() < until) {
      watch_.kill_all();
      watch_.listen(kSlice);
      reap();
    }
    if (process_ > 0) {
      ::kill(-process_, SIGKILL);
      ::kill(process_, SIGKILL);
      ::waitpid(process_, nullptr, 0);
      process_ = -1;
    }
    for (const double last = seconds_now() + kOrderly; !watch_.are_gone() && seconds_now() < last;) {
      watch_.kill_all();
      watch_.listen(kSlice);
    }
  }

  RankWatch watch_;
  pid_t process_ = -1;
};

}  // namespace

int start_ranks(int ranks, const std::vector<std::string>& arguments,
                const std::function<std::string()>& what_is_saved, const RankDeadlines& deadlines) {
  if (!is_installed("mpirun"))
    fail_resources(
        "[--ranks] {} ranks are started through mpirun, which is not in PATH; install Open MPI (Debian: "
        "openmpi-bin)",
        ranks);
  end_silently();  // rank 0 speaks
  const StopSignals signals;
  Launcher launcher(ranks, arguments, deadlines);
  if (const auto code = launcher.wait()) return *code;
  // Ranks that looked for each other when they were asked to stop had nothing to save.
  if (signals.requested() && !launcher.has_begun()) return static_cast<int>(ErrorKind::kInterrupted);
  if (const std::string saved = what_is_saved ? what_is_saved() : ""; !saved.empty())
    std::fprintf(stderr, "%s\n", saved.c_str());
  return static_cast<int>(ErrorKind::kResources);
}

}  // namespace temper::collectives
