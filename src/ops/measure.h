#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "ops/op_info.h"
#include "ops/ops_config.h"

// Kernels tried on this machine (ops/probe.h): whether they compute what the composition computes, how long
// they take, and what that says about the order of preference.
namespace temper::ops {

struct Measurement {
  std::string op, field, provider;
  Refusal refusal = {};  // it cannot run; nothing else is known
  Refusal failure = {};  // it was chosen, and failed while running
  double error = 0;  // the worst of outputs and gradients, relative to the tensor's largest value, compared
                     // with the composition in float32, on inputs before rounding
  double tolerance = 0;
  double milliseconds = 0;  // forward and backward, median; 0 when not timed
  bool correct() const { return !refusal && !failure && error <= tolerance; }
};

// Every kernel of every op that runs on this hardware, or those of `only`. An Error where that is no op that
// can be tried.
std::vector<Measurement> measure_kernels(DType dtype, const HardwareFacts& facts, bool timed,
                                         std::string_view only = "");

// The fastest correct kernel of each field for which Temper's order is only a guess: where several besides
// eager can run. Stored per device and dtype in a file of the user's cache; a run reads it for fields that
// are left out.
FieldValues fastest(const std::vector<Measurement>& measurements);
std::string preferences_file();  // $XDG_CACHE_HOME/temper/kernels.json
void remember(const FieldValues& preferred, const HardwareFacts& facts, DType dtype);
FieldValues remembered(const HardwareFacts& facts, DType dtype);

}  // namespace temper::ops
