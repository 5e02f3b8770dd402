#include "collectives/mpi/mpi.h"

#include <chrono>
#include <thread>

#include "base/libraries.h"
#include "base/pinning.h"
#include "base/registry.h"
#include "collectives/launch.h"
#include "collectives/launched.h"

namespace temper::collectives {
namespace {

// A launcher ends all ranks soon after the first one has ended: that must be the one that reports.
void let_the_other_report() { std::this_thread::sleep_for(std::chrono::seconds(3)); }

// One error is printed, by the lowest rank that has one: those that stop for the same reason in the same call
// are given a moment to say so.
[[noreturn]] void rethrow_once(Network& network, const Error& error) {
  network.stop(error.what(), error.kind());
  if (network.hears_of_lower_rank(0.3)) {
    let_the_other_report();
    throw StoppedByAnother(0, error.what(), error.kind());
  }
  throw Error(network.rank() == 0 ? std::string(error.what())
                                  : fmt::format("rank {}: {}", network.rank(), error.what()),
              error.kind());
}

// The ranks of one machine share its cores equally.
void launch_mpi(const LaunchOptions& options, const Body& body) {
  Network network;
  network.set_deadline(options.deadline);
  if (options.ranks != 1 && options.ranks != network.size())
    fail("[collectives] {} ranks are asked for, and the launcher has started {}", options.ranks,
         network.size());
  const std::unique_ptr<Group> world = mpi_world(network);
  share_cores(world->on_machine().place, world->on_machine().ranks);
  try {
    body(*world);
    world->barrier("end of the run");
  } catch (const StoppedByAnother&) {
    let_the_other_report();
    throw;
  } catch (const Error& error) {
    rethrow_once(network, error);
  } catch (const std::exception& error) {
    rethrow_once(network, Error(error.what(), ErrorKind::kDefect));
  }
}

}  // namespace

void register_mpi() {
  registry<Launch>().add("mpi", launch_mpi);
  registry<LibraryProbe>().add("MPI", probe_mpi);
}

}  // namespace temper::collectives
