#include "base/date.h"

#include <fmt/chrono.h>

#include <ctime>

namespace temper {

std::string utc_now() { return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr))); }

}  // namespace temper
