#pragma once
#include <functional>
#include <string>
#include <vector>

// On which cores the pool's threads run. A thread that waits for another at the end of every op loses whole
// time slices where the system lets both take turns on one core; pinned threads never meet.
namespace temper {

enum class Pinning { kAuto, kOff, kOn };

// The cores that this process may run on (its affinity mask when first asked), in the order in which threads
// get them. Throws where the system does not tell.
const std::vector<int>& usable_cores();

// From now on this process has part `part` of `parts` of its cores: of several processes of one machine each
// takes its own, with a pool of as many threads. Where there are fewer cores than parts all keep them, with
// one thread each. Before threads are pinned.
void share_cores(int part, int parts);

// One core of each physical one first, then their second threads. `siblings` names a core's physical core.
std::vector<int> in_order_of_use(const std::vector<int>& cores,
                                 const std::function<std::string(int)>& siblings);

// kOn: each thread of the pool, the calling one among them, on a core of its own (threads beyond the cores
// begin with the first again), or an error. kAuto: where that is possible and there are as many threads as
// cores, so that processes of few threads do not all take the first ones. kOff: back to all cores. Where the
// user has bound threads (OMP_PROC_BIND, OMP_PLACES), nothing is done. Returns whether threads are pinned.
bool pin_threads(Pinning pinning);

void pin_new_threads();  // where threads are pinned, those that the pool has got since; throws as kOn

// The calling thread, which inherited its creator's core, may run anywhere: for threads outside of the pool.
void leave_core();

// The cores that each thread of the pool may run on.
std::vector<std::vector<int>> cores_of_threads();

}  // namespace temper
