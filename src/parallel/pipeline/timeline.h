#pragma once
#include <string>
#include <vector>

#include "parallel/pipeline/schedule.h"

namespace temper::parallel {

// Of a model in a pipeline, in one unit (PartCosts).
struct PipelineCosts {
  std::vector<PartCosts> parts;  // in order, stages · chunks of them
  double transfer = 0;           // of one tensor, in which both ranks do nothing else
};
PipelineCosts equal_costs(const PipelineShape& shape, const PartCosts& each);

// When each action of each rank begins and ends, in the unit of the costs, where each begins as soon as it
// may.
struct Timeline {
  struct Interval {
    double begin = 0, end = 0;
  };
  std::vector<std::vector<Interval>> ranks;  // by rank and action
  double end = 0;                            // of the last action
  double computing = 0;                      // of all ranks together

  // Of the ranks' time, the share in which they do not compute.
  double bubble_share() const {
    return end == 0 ? 0 : 1 - computing / (end * static_cast<double>(ranks.size()));
  }
};
// What a pass of a rank waits for: for its own inputs, where transfers overlap with computation (each begins
// when the passes before it in both ranks' lists and the earlier transfers are done), or for every transfer
// before it in the list.
enum class Waiting { kForInputs, kForAllTransfers };
// Of a schedule that check_schedule() accepts.
Timeline simulate(const Schedule& schedule, const PipelineCosts& costs, Waiting waiting);

// A line with the schedule's numbers, and one for each rank, at most `width` characters wide: F2 is the
// forward of micro-batch 2, B its backward, b and w those of the input and the weights; behind the number the
// chunk, as a letter, where there are several; a dash continues it, a point is a time without work.
//
//   1f1b: 2 stages, 3 micro-batches; 25.0 % of the ranks' time is idle
//   rank 0  F0 F1 .  .  B0 -  F2 B1 -  .  B2 -  (at most 2 activations)
//   rank 1  .  F0 B0 -  F1 B1 -  F2 B2 -  (at most 1 activations)
std::string draw(const Schedule& schedule, const Timeline& timeline, size_t width);

}  // namespace temper::parallel
