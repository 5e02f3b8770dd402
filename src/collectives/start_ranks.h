#pragma once
#include <string>
#include <vector>

namespace temper::collectives {

// Runs this program with other arguments as that many ranks on this machine, through MPI's launcher,
// and returns the exit code: a rank's own, or that of ErrorKind::kResources where a signal has ended a rank,
// which is said on standard error. The first SIGINT or SIGTERM asks the ranks to stop, as SIGUSR1 to each of
// them; a second one ends them. They end with this process, too. A kResources Error where mpirun is not
// installed.
int start_ranks(int ranks, const std::vector<std::string>& arguments);

}  // namespace temper::collectives
