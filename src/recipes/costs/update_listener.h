#pragma once
#include "base/tracing/trace.h"
#include "collectives/planned_calls.h"

namespace temper::recipes {

// Hears what an update asks of a planned rank, of its device and of its groups, in one order.
class UpdateListener : public trace::Listener, public collectives::PlannedCalls {};

}  // namespace temper::recipes
