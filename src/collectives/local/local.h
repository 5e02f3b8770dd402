#pragma once
#include <memory>

#include "collectives/group.h"

namespace temper::collectives {

// The group of a rank that is alone: every collective gives back what it was given, and takes no time.
// Any thread may use it.
Group& alone();

// Rank 0 of so many, of which no other exists: every collective takes the memory that it takes and moves
// nothing. For plans, on a device that only counts.
std::unique_ptr<Group> planned_group(int ranks);

}  // namespace temper::collectives
