#include "base/error.h"

namespace temper {

void invariant(bool ok, std::string_view message, const char* file, int line) {
  if (ok) return;
  throw Error(fmt::format("[{}:{}] {} (a defect of Temper; please report it)", file, line, message),
              ErrorKind::kDefect);
}

}  // namespace temper
