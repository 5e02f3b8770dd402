#include "collectives/launch.h"

#include "base/registry.h"

namespace temper::collectives {

void launch(std::string_view room, const LaunchOptions& options, const Body& body) {
  const Launch* found = registry<Launch>().find(room);
  invariant(found != nullptr, fmt::format("there is no room collectives/{}", room));
  (*found)(options, body);
}

}  // namespace temper::collectives
