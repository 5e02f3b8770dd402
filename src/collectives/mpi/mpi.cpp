#include "collectives/mpi/mpi.h"

#include <chrono>
#include <thread>

#include "base/error.h"
#include "base/parts/libraries.h"
#include "base/parts/registry.h"
#include "base/signals/end_signals.h"
#include "base/threads/pinning.h"
#include "collectives/hosts.h"
#include "collectives/launch.h"
#include "collectives/launched.h"
#include "collectives/launcher_line.h"

namespace temper::collectives {
namespace {

// For ranks that compute and do not hear of others yet: longer than a moment in which ranks on few cores
// wait.
constexpr double kLowerRanksAnswer = 3;

// A launcher ends all ranks soon after the first one has ended: that must be the one that reports.
void let_the_other_report() {
  std::this_thread::sleep_for(std::chrono::duration<double>(2 * kLowerRanksAnswer));
}

// One error is printed, by the lowest rank that has one.
[[noreturn]] void rethrow_once(Network& network, const Group& world, const Error& error) {
  network.stop(error.what(), error.kind());
  if (network.lower_rank_stopped(kLowerRanksAnswer)) {
    end_silently();
    let_the_other_report();
    throw StoppedByAnother(0, error.what(), error.kind());
  }
  throw Error(network.rank() == 0 ? std::string(error.what())
                                  : fmt::format("rank {}: {}", with_host(world, world.rank()), error.what()),
              error.kind());
}

// Where the launcher's ranks do not see each other, one of them reports it: the first one, or the second one
// where their number is unknown, because the first one may be alone.
void check_launcher(const Network& network) {
  const auto started = launched();
  if (!started) return;
  try {
    check_all_are_seen(*started, network.rank(), network.size());
  } catch (const Error& error) {
    if (started->rank <= (started->size ? 0 : 1)) throw;
    end_silently();
    let_the_other_report();
    throw StoppedByAnother(0, error.what(), error.kind());
  }
}

// The ranks of one machine share its cores equally.
void launch_mpi(const LaunchOptions& options, const Body& body) {
  Network network;
  check_launcher(network);
  if (options.ranks != 1 && options.ranks != network.size())
    fail("[collectives] {} ranks are asked for, and the launcher has started {}", options.ranks,
         network.size());
  const std::unique_ptr<Group> world = mpi_world(network);
  world->set_deadline(options.deadline);
  notify_launcher_ready();
  share_cores(world->on_machine().place, world->on_machine().ranks);
  try {
    body(*world);
    world->barrier("end of the run");
    notify_launcher_end();  // MPI's own end may wait forever where a call of its own failed
  } catch (const StoppedByAnother&) {
    end_silently();  // a launcher may end this rank before the other one
    network.stop_silently();
    let_the_other_report();
    throw;
  } catch (const Error& error) {
    rethrow_once(network, *world, error);
  } catch (const std::exception& error) {
    rethrow_once(network, *world, Error(error.what(), ErrorKind::kDefect));
  }
}

}  // namespace

void register_mpi() {
  registry<Launch>().add("mpi", launch_mpi);
  registry<LibraryProbe>().add("MPI", probe_mpi);
}

}  // namespace temper::collectives
