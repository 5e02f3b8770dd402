#include "base/threads/pinning.h"

#include <fmt/core.h>
#include <omp.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>

#include "base/error.h"
#include "base/threads/parallel_region.h"
#include "base/threads/threads.h"

namespace temper {
namespace {

std::atomic<bool> pinned = false;

std::vector<int> cores_of_this_thread() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0)
    fail_resources("[train.pin_threads] the system does not tell which cores may be used: {}; use off",
                   std::strerror(errno));
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  return cores;
}

// 0, or the system's number of an error.
int run_on(const std::vector<int>& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(core, &set);
  return sched_setaffinity(0, sizeof set, &set) == 0 ? 0 : errno;
}

std::string siblings_of(int core) {
  std::ifstream file(fmt::format("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", core));
  std::string line;
  return std::getline(file, line) ? line : fmt::format("{}", core);
}

bool one_thread_for_each_core() {
  try {
    return static_cast<size_t>(omp_get_max_threads()) == usable_cores().size();
  } catch (const Error&) {
    return false;
  }
}

// 0, or the system's number of an error.
int place_all(bool pin) {
  const std::vector<int>& cores = usable_cores();
  std::atomic<int> error = 0;
  ParallelRegion region;
#pragma omp parallel
  {
    region.begin_task();
    const auto thread = static_cast<size_t>(omp_get_thread_num());
    if (const int failed = run_on(pin ? std::vector{cores[thread % cores.size()]} : cores)) error = failed;
    region.end_task();
  }
  region.end();
  return error;
}

// All of them, or none.
void place(bool pin) {
  const int error = place_all(pin);
  pinned = pin && error == 0;
  if (error == 0) return;
  place_all(false);
  fail_resources("[train.pin_threads] threads cannot be pinned to cores: {}; use off", std::strerror(error));
}

// OMP_PROC_BIND, or places without it.
bool bound_by_the_user() {
  return std::getenv("OMP_PROC_BIND") != nullptr || omp_get_proc_bind() != omp_proc_bind_false;
}

}  // namespace

std::vector<int> in_order_of_use(const std::vector<int>& cores,
                                 const std::function<std::string(int)>& siblings) {
  std::map<std::string, int> taken;  // of each physical core
  std::vector<std::pair<int, int>> ranked;
  for (const int core : cores) ranked.emplace_back(taken[siblings(core)]++, core);
  std::sort(ranked.begin(), ranked.end());
  std::vector<int> ordered;
  for (const auto& [rank, core] : ranked) ordered.push_back(core);
  return ordered;
}

namespace {

std::vector<int>& cores_of_this_process() {
  static std::vector<int> cores = in_order_of_use(cores_of_this_thread(), siblings_of);
  return cores;
}

}  // namespace

const std::vector<int>& usable_cores() { return cores_of_this_process(); }

void share_cores(int part, int parts) {
  std::vector<int> cores = usable_cores();
  const size_t count = cores.size(), ranks = static_cast<size_t>(parts), mine = static_cast<size_t>(part);
  if (count < ranks) return set_num_threads(1);
  // The threads of one physical core stay together.
  std::stable_sort(cores.begin(), cores.end(),
                   [](int a, int b) { return std::stoi(siblings_of(a)) < std::stoi(siblings_of(b)); });
  const auto at = [&](size_t i) { return cores.begin() + static_cast<std::ptrdiff_t>(count * i / ranks); };
  cores_of_this_process() = in_order_of_use({at(mine), at(mine + 1)}, siblings_of);
  run_on(usable_cores());
  set_num_threads(static_cast<int>(usable_cores().size()));
}

bool pin_threads(Pinning pinning) {
  if (bound_by_the_user()) return false;
  const bool suits = pinning == Pinning::kOn || (pinning == Pinning::kAuto && one_thread_for_each_core());
  try {
    if (suits || pinned) place(suits);
  } catch (const Error&) {
    if (pinning == Pinning::kOn) throw;
  }
  return pinned;
}

void pin_new_threads() {
  if (pinned) place(true);
}

void leave_core() {
  if (pinned) run_on(usable_cores());
}

std::vector<std::vector<int>> cores_of_threads() {
  std::vector<std::vector<int>> cores(static_cast<size_t>(omp_get_max_threads()));
  ParallelRegion region;
#pragma omp parallel
  {
    region.begin_task();
    cores[static_cast<size_t>(omp_get_thread_num())] = cores_of_this_thread();
    region.end_task();
  }
  region.end();
  return cores;
}

}  // namespace temper
