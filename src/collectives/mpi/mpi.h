#pragma once
#include <memory>
#include <string>
#include <vector>

#include "base/libraries.h"
#include "collectives/group.h"
#include "collectives/mpi/network.h"

namespace temper::collectives {

// The group of these ranks of the run, this one among them, whose messages have a tag of their own. Sums are
// those of room `threads`, bit for bit.
std::unique_ptr<Group> make_mpi_group(Network& network, std::string name, std::vector<int> ranks, int tag);

LibraryState probe_mpi();  // opens the library, and starts nothing

}  // namespace temper::collectives
