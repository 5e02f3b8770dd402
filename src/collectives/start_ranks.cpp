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

#include "base/error.h"

namespace temper::collectives {
namespace {

volatile std::sig_atomic_t launcher = 0, signals = 0;

// While ranks come to be, the launcher has nobody to pass a signal on to: it is asked again until it ends.
void ask_again(int) {
  ::kill(static_cast<pid_t>(launcher), SIGUSR1);
  ::alarm(1);
}

void forward(int) {
  if (signals == 0)
    ask_again(SIGALRM);
  else
    ::kill(static_cast<pid_t>(launcher), SIGTERM);
  signals = 1;
}

// What the launcher is told: silence of its own, since the ranks say what went wrong; ranks may be more than
// cores, and share out the cores themselves.
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

[[noreturn]] void become_launcher(const std::vector<std::string>& words, pid_t parent) {
  // A terminal's signals are for this program, which passes them on as it wants them understood.
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(1);
  if (const int nothing = ::open("/dev/null", O_RDONLY); nothing >= 0) ::dup2(nothing, STDIN_FILENO);
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

}  // namespace

int start_ranks(int ranks, const std::vector<std::string>& arguments) {
  if (!is_installed("mpirun"))
    fail_resources(
        "[--ranks] {} ranks are started through mpirun, which is not in PATH; install Open MPI (Debian: "
        "openmpi-bin)",
        ranks);
  const std::vector<std::string> command = launcher_command(ranks, arguments);
  std::fflush(nullptr);
  const pid_t parent = ::getpid(), child = ::fork();
  if (child < 0) fail_resources("[--ranks] mpirun cannot be started: {}", std::strerror(errno));
  if (child == 0) become_launcher(command, parent);
  launcher = child;
  signals = 0;
  struct sigaction action {
  }, interrupt{}, terminate{};
  struct sigaction repeat {
  }, alarm{};
  repeat.sa_handler = ask_again;
  ::sigaction(SIGALRM, &repeat, &alarm);
  action.sa_handler = forward;
  ::sigaction(SIGINT, &action, &interrupt);
  ::sigaction(SIGTERM, &action, &terminate);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  ::sigaction(SIGINT, &interrupt, nullptr);
  ::sigaction(SIGTERM, &terminate, nullptr);
  ::alarm(0);
  ::sigaction(SIGALRM, &alarm, nullptr);
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (code <= 128) return code;
  std::fprintf(stderr, "temper: a rank was ended by signal %d (%s), and all others with it\n", code - 128,
               ::strsignal(code - 128));
  return static_cast<int>(ErrorKind::kResources);
}

}  // namespace temper::collectives
