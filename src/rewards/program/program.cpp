// A program of the user's that judges answers, over pipes (protocol.h).
#include "base/error.h"
#include "base/parts/registry.h"
#include "base/text.h"
#include "rewards/program/pool.h"
#include "rewards/room.h"

namespace temper::rewards {
namespace {

// One text is for a shell; several are a program and its arguments.
void check_program(const RewardConfig& config, const std::string& key) {
  if (config.judge.command.empty() || config.judge.command.front().empty())
    fail("[{}.command] is missing; write for example python3 reward.py", key);
  if (config.judge.command.size() > 1 && find_program(config.judge.command.front()).empty())
    fail("[{}.command] '{}' is not a program that can be run: no such file{}", key,
         config.judge.command.front(),
         config.judge.command.front().find('/') == std::string::npos ? " in PATH"
                                                                     : ", or without the right to run it");
}

Launch launch_of(const RewardConfig& config) {
  Launch launch;
  launch.name = join(config.judge.command, " ");
  launch.words = config.judge.command;
  if (launch.words.size() == 1)
    launch.words = {"/bin/sh", "-c", launch.words.front()};
  else
    launch.words.front() = find_program(launch.words.front());
  launch.parallel = static_cast<size_t>(config.judge.parallel.value_or(1));
  launch.timeout = config.judge.timeout.value_or(30);
  return launch;
}

std::unique_ptr<Reward> make(const RewardConfig& config, const std::string& key) {
  return std::make_unique<Pool>(launch_of(config), static_cast<size_t>(config.judge.processes.value_or(1)),
                                key);
}

}  // namespace

void register_program() {
  registry<Room>().add("program", {{"command", "processes", "parallel", "timeout"}, check_program, make});
}

}  // namespace temper::rewards
