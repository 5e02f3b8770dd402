#include "base/parts/library_exits.h"

#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "base/error.h"

namespace temper {
namespace {

std::atomic<bool> program_ends = false;

void tell() {
  if (program_ends) return;
  rlimit threads{}, addresses{};
  ::getrlimit(RLIMIT_NPROC, &threads);
  ::getrlimit(RLIMIT_AS, &addresses);
  const auto shown = [](rlim_t limit) {
    return limit == RLIM_INFINITY ? -1LL : static_cast<long long>(limit);
  };
  std::fprintf(
      stderr,
      "temper: a library ended the program, most likely because no more threads can be started (ulimit -u: "
      "%lld threads, ulimit -v: %lld bytes, -1 is unlimited); set OMP_NUM_THREADS or train.threads lower, or "
      "raise the limit\n",
      shown(threads.rlim_cur), shown(addresses.rlim_cur));
  std::fflush(nullptr);
  ::_exit(static_cast<int>(ErrorKind::kResources));
}

}  // namespace

void report_exits_of_libraries() { std::atexit(tell); }
void leave_exit_to_program() { program_ends = true; }

}  // namespace temper
