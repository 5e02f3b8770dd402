#include "cli/arguments/ranks.h"

#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "base/signals/end_signals.h"
#include "base/threads/pinning.h"
#include "collectives/launch.h"
#include "collectives/launched.h"
#include "collectives/start_ranks.h"
#include "config/scalars.h"

namespace temper::cli {
namespace {

int number_of_ranks(const std::string& text) {
  const std::optional<int64_t> ranks = config::parse_integer(text);
  constexpr int64_t kMost = 65536;
  if (!ranks || *ranks < 1 || *ranks > kMost)
    fail("[command line] --ranks is '{}'; expected a number of ranks, 1 to {}", text, kMost);
  return static_cast<int>(*ranks);
}

// More would take minutes to start, and memory for nothing. Plans (--dry-run) may be of any number.
void check_cores(int ranks) {
  constexpr int kMostOfCore = 16;
  const auto cores = static_cast<int>(usable_cores().size());
  if (ranks > kMostOfCore * cores)
    fail(
        "[command line] --ranks is {}, but {} cores may be used here, and at most {} ranks share a core; "
        "start one rank for each GPU, or for each core or less",
        ranks, cores, kMostOfCore);
}

int start(int ranks, const RunArguments& parsed, const RankedCommand& ranked) {
  check_cores(ranks);
  std::vector<std::string> command{ranked.name};
  if (!parsed.yaml_file.empty()) command.push_back(parsed.yaml_file);
  command.insert(command.end(), parsed.chosen.begin(), parsed.chosen.end());
  command.insert(command.end(), parsed.flags.begin(), parsed.flags.end());
  return collectives::start_ranks(ranks, command, ranked.saved);
}

}  // namespace

int run_on_ranks(RunArguments& parsed, const RankedCommand& command) {
  const auto run = [&](collectives::Group& ranks) {
    if (ranks.rank() != 0) silence_log();
    command.run(ranks);
  };
  const std::optional<std::string> given = parsed.take("--ranks");
  ignore_broken_pipes();
  if (const auto started = collectives::launched()) {
    if (started->rank != 0) end_silently();
    if (given)
      fail("[command line] --ranks is {}, but a launcher has started the ranks; leave it out", *given);
    collectives::launch("mpi", {}, run);
    return 0;
  }
  const int ranks = given ? number_of_ranks(*given) : 1;
  if (ranks > 1) return command.prepare(ranks) ? start(ranks, parsed, command) : 0;
  run(collectives::alone());
  return 0;
}

}  // namespace temper::cli
