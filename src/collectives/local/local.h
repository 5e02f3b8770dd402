#pragma once
#include <memory>

#include "collectives/group.h"
#include "collectives/planned_calls.h"

namespace temper::collectives {

// The group of a rank that is alone: every collective gives back what it was given, and takes no time.
// Any thread may use it.
Group& alone();

// One of `ranks` ranks, without the others: every collective allocates the memory that it needs and moves no
// data. Its parts are those of the ranks that this one is in. For plans, on a device that only counts memory.
// `calls`, which lives longer, hears of each collective, also of the parts'; null: nothing does.
std::unique_ptr<Group> planned_group(int ranks, int rank = 0, PlannedCalls* calls = nullptr);

}  // namespace temper::collectives
