#pragma once
#include <vector>

#include "parallel/pipeline/schedule.h"

namespace temper::parallel {

// What a rank holds at a time, at most.
struct RankPeak {
  int activations = 0;  // of forward passes whose backward, also that of the weights, is not done
  int received = 0;     // tensors that have come for passes that have not begun
};

// Runs a schedule without computing, with sends that wait until the other rank receives. Of each rank the
// peak. An Error of kind kDefect
// - where all ranks that are not done wait: it names each of them, and for whom and what it waits,
// - where a rank computes or sends what it does not have yet, does something twice or leaves it out, or
// - where a rank has the activations of more forward passes than the schedule says.
std::vector<RankPeak> check_schedule(const Schedule& schedule);

}  // namespace temper::parallel
