#pragma once
#include <functional>
#include <string>
#include <vector>

#include "collectives/rank_watch.h"

namespace temper::collectives {

// Runs this program with other arguments as that many ranks on this machine, through MPI's launcher, and
// returns the exit code: a rank's own, or that of ErrorKind::kResources where ranks were ended by a signal or
// do not go on (RankWatch), which is said on standard error, with `what_is_saved()`. SIGINT, SIGTERM, SIGHUP
// and SIGUSR1 ask the ranks to stop, once. They end with this process, and none of them is left when this
// returns. A kResources Error where mpirun is not installed.
int start_ranks(int ranks, const std::vector<std::string>& arguments,
                const std::function<std::string()>& what_is_saved = {}, const RankDeadlines& deadlines = {});

}  // namespace temper::collectives
