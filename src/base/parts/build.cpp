#include "base/parts/build.h"

#include <fmt/core.h>

#include "version.h"

namespace temper {
namespace {

std::string& commit_of_program() {
  static std::string commit;
  return commit;
}

}  // namespace

std::string version() { return TEMPER_VERSION; }

void set_commit(const std::string& commit) { commit_of_program() = commit; }

const std::string& commit() { return commit_of_program(); }

std::string program_version() {
  return commit().empty() ? version() : fmt::format("{} (commit {})", version(), commit());
}

}  // namespace temper
