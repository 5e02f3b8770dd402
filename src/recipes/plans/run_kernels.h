#pragma once
#include <string>
#include <vector>

#include "ops/selection.h"
#include "recipes/keys/run_config.h"

namespace temper::recipes {

// Whether training states of this run are in its folder.
bool has_states(const RunConfig& config);

// What is tried first for fields that were left out: the kernels that the run had before, so that it resumes
// bit for bit; for a new run what was measured on this machine. Warns of other hardware.
ops::Preferences preferred_kernels(const RunConfig& config, const HardwareFacts& facts);

// Of a model's kernels those that this run computes with, and those that were written.
std::vector<ops::Choice> kernels_of_run(const RunConfig& config, const ops::BoundOps& ops);

// These, as a run says at its start: on one line, or with reasons; and what was written and is not read.
std::string describe_kernels(const RunConfig& config, const ops::BoundOps& ops, const HardwareFacts& facts,
                             bool verbose);

}  // namespace temper::recipes
