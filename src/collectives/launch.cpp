#include "collectives/launch.h"

#include "base/error.h"
#include "base/parts/registry.h"

namespace temper::collectives {

void launch(std::string_view room, const LaunchOptions& options, const Body& body) {
  const Launch* found = registry<Launch>().find(room);
  if (found == nullptr)
    fail_resources(
        "[collectives] this program was built without room {}: its headers were missing (make setup)", room);
  (*found)(options, body);
}

}  // namespace temper::collectives
