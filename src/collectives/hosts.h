#pragma once
#include <string>
#include <vector>

#include "collectives/group.h"

// Where the ranks of this process's run are, for messages: a process is a rank of one run.
namespace temper::collectives {

// What tells this machine from others: its name first, then, behind blanks, what machines of one name differ
// by. Containers of one system have names, cores and GPUs of their own.
std::string this_machine();

// The names of all ranks' hosts, in the order of the ranks; none where all ranks share a machine. Set by the
// room that carries the run, before the ranks have work.
void set_hosts(std::vector<std::string> names);
bool are_on_several_hosts();

// A rank of the run, "3", or "3 (on node2)" where the ranks are on several hosts.
std::string with_host(int rank);
// The same of the rank that has this place in the group.
std::string with_host(const Group& group, int place);

}  // namespace temper::collectives
