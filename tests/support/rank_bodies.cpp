#include "tests/support/rank_bodies.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <map>

#include "base/clock.h"
#include "base/files.h"
#include "collectives/launch.h"
#include "collectives/launcher_line.h"
#include "collectives/start_ranks.h"

namespace temper {
namespace {

constexpr const char* kAsRank = "--as-rank";
constexpr double kDeadline = 60;

std::map<std::string, RankBody>& bodies() {
  static std::map<std::string, RankBody> all;
  return all;
}

int code_of_rank(const std::string& name, const std::string& argument) {
  try {
    collectives::launch("mpi", {.deadline = kDeadline},
                        [&](collectives::Group& group) { bodies().at(name)(group, argument); });
    return 0;
  } catch (const collectives::StoppedByAnother& error) {
    return static_cast<int>(error.kind());
  } catch (const Error& error) {
    std::fprintf(stderr, "temper: %s\n", error.what());
    return static_cast<int>(error.kind());
  }
}

}  // namespace

bool add_rank_body(const std::string& name, RankBody body) {
  return bodies().emplace(name, std::move(body)).second;
}

RanksOutcome run_ranks(int ranks, const std::string& body, const std::string& argument) {
  const TemporaryDirectory files;
  const double start = seconds_now();
  const pid_t child = ::fork();
  if (child == 0) {
    ::freopen((files / "out").c_str(), "w", stdout);
    ::dup2(STDOUT_FILENO, STDERR_FILENO);
    const int code = collectives::start_ranks(ranks, {kAsRank, body, argument});
    std::fflush(nullptr);
    ::_exit(code);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(files / "out"), seconds_now() - start};
}

std::optional<int> be_rank(int argc, char** argv) {
  if (argc < 4 || std::string(argv[1]) != kAsRank) return std::nullopt;
  collectives::join_launcher();
  const int code = code_of_rank(argv[2], argv[3]);
  collectives::notify_launcher_end();
  return code;
}

}  // namespace temper
