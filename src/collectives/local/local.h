#pragma once
#include <memory>

#include "collectives/group.h"

namespace temper::collectives {

// The group of a rank that is alone: every collective gives back what it was given, and takes no time.
// Any thread may use it.
Group& alone();

// One of `ranks` ranks, without the others: every collective allocates the memory that it needs and moves no
// data. Its parts are those of the ranks that this one is in. For plans, on a device that only counts memory.
std::unique_ptr<Group> planned_group(int ranks, int rank = 0);

}  // namespace temper::collectives
