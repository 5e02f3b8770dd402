#pragma once
#include <functional>
#include <optional>
#include <string>

#include "collectives/group.h"

// What ranks that are processes do in a test: a test program runs itself again through MPI's launcher.
namespace temper {

using RankBody = std::function<void(collectives::Group& group, const std::string& argument)>;
// Before main(): const bool added = add_rank_body("sums", ...);
bool add_rank_body(const std::string& name, RankBody body);

struct RanksOutcome {
  int code = -1;     // of the launcher, which is the first failing rank's
  std::string text;  // all that was written
  double seconds = 0;
};
RanksOutcome run_ranks(int ranks, const std::string& body, const std::string& argument = "");

// The exit code of a process that was started as a rank; nothing in others.
std::optional<int> be_rank(int argc, char** argv);

}  // namespace temper
