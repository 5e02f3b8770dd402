#pragma once
#include <memory>

#include "collectives/group.h"

namespace temper::collectives {

// Rank 0 of so many, of which no other exists: every collective takes the memory that it takes and moves
// nothing. For plans, on a device that only counts.
std::unique_ptr<Group> planned_group(int ranks);

}  // namespace temper::collectives
