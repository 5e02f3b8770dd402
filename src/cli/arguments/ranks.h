#pragma once
#include <functional>
#include <string>

#include "cli/arguments/run_arguments.h"
#include "collectives/local/local.h"

namespace temper::cli {

// Several ranks of a command that says what to do in a run's configuration.
struct RankedCommand {
  std::string name;  // "train"
  // Called before `ranks` ranks of this machine are started; false: nothing is left for them to do.
  std::function<bool(int ranks)> prepare = {};
  std::function<void(collectives::Group&)> run = {};  // by each of them; log lines are those of rank 0
  std::function<std::string()> saved = {};  // what is saved, where ranks were lost; empty: nothing is
};

// On the ranks that a launcher has started, on --ranks of this machine, or on one. The exit code.
int run_on_ranks(RunArguments& parsed, const RankedCommand& command);

}  // namespace temper::cli
