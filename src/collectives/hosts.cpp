#include "collectives/hosts.h"

#include <fmt/core.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <utility>

#include "base/process.h"

namespace temper::collectives {
namespace {

std::vector<std::string> hosts;

}  // namespace

std::string this_machine() {
  std::array<char, HOST_NAME_MAX + 1> host{};
  ::gethostname(host.data(), host.size() - 1);
  const ProcessName own = this_process();
  return fmt::format("{} {} {}", host.data(), own.host, own.boot);
}

void set_hosts(std::vector<std::string> names) { hosts = std::move(names); }

bool are_on_several_hosts() { return !hosts.empty(); }

std::string with_host(int rank) {
  if (hosts.empty()) return std::to_string(rank);
  return fmt::format("{} (on {})", rank, hosts.at(static_cast<size_t>(rank)));
}

std::string with_host(const Group& group, int place) {
  return with_host(group.world_ranks().at(static_cast<size_t>(place)));
}

}  // namespace temper::collectives
