#include "recipes/costs/machine.h"

#include <algorithm>

#include "base/error.h"

namespace temper::recipes {
namespace {

const OpSpeed& speed_of(const Machine& machine, std::string_view op, bool multiplies) {
  constexpr std::string_view kBackward = " backward";
  auto found = machine.ops.find(op);
  if (found == machine.ops.end() && op.ends_with(kBackward))
    found = machine.ops.find(op.substr(0, op.size() - kBackward.size()));
  if (found == machine.ops.end() || found->second.of_flops != multiplies)
    found = machine.ops.find(multiplies ? Machine::kProducts : Machine::kMoves);
  invariant(found != machine.ops.end(), "a machine knows products and moves");
  return found->second;
}

}  // namespace

double Machine::seconds(std::string_view op, const trace::Work& work) const {
  const bool multiplies = work.flops > 0;
  const OpSpeed& speed = speed_of(*this, op, multiplies);
  const double amount = multiplies ? work.flops : work.bytes;
  if (amount <= 0) return 0;
  const double moved = memory_bandwidth > 0 ? work.bytes / memory_bandwidth : 0;
  return std::max({speed.curve.seconds(amount), multiplies ? moved : 0, launch}) / step_share;
}

}  // namespace temper::recipes
