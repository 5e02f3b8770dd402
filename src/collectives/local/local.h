#pragma once
#include "collectives/group.h"

namespace temper::collectives {

// The group of a rank that is alone: every collective gives back what it was given, and takes no time.
// Any thread may use it.
Group& alone();

}  // namespace temper::collectives
