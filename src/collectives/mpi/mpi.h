#pragma once
#include <memory>

#include "base/parts/libraries.h"
#include "collectives/group.h"
#include "collectives/mpi/network.h"

namespace temper::collectives {

// The group of all ranks of the run. Sums are those of room `threads`, bit for bit.
std::unique_ptr<Group> mpi_world(Network& network);

LibraryState probe_mpi();  // opens the library, and starts nothing

}  // namespace temper::collectives
