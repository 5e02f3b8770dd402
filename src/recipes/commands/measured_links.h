#pragma once
#include "collectives/group.h"
#include "recipes/costs/machine.h"

namespace temper::recipes {

// Fills the link that joins these ranks, which each have a device: that of one host, or the network where
// each is on a host of its own. Collectives of two sizes give its latency and its speed, and one next to
// matrix multiplications what they lose. All ranks call it; nothing where there is one. An Error where some
// ranks share a host and others do not.
void measure_links(collectives::Group& ranks, Machine& machine);

}  // namespace temper::recipes
