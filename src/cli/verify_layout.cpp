#include <cstdio>
#include <memory>

#include "base/error.h"
#include "cli/key_help.h"
#include "cli/program.h"
#include "cli/run_arguments.h"
#include "config/scalars.h"
#include "recipes/verify_layout.h"

namespace temper::cli {
namespace {

constexpr const char* kUsage =
    R"(Prove that several ranks train what one rank trains, before the run.

  temper verify-layout RUN.yaml --ranks N [--KEY VALUE ...]

Trains a copy of the run's model of two layers (one of each kind) for three
updates on one rank, and as N ranks divide the work by the group parallel, in
float32 on this machine's processor. Compares losses, every gradient before
clipping, and weights; the exit code is 1 where they differ by more than
rounding.

  --ranks N    the number of ranks (2)
  --help all, --help KEY   every key, or one of them
)";

int verify(const std::vector<std::string>& arguments) {
  if (arguments.empty()) {
    std::fputs(kUsage, stdout);
    return 0;
  }
  if (show_help(arguments, kUsage)) return 0;
  RunArguments parsed = parse_run_arguments(arguments, {});
  const std::string text = parsed.take("--ranks").value_or("2");
  const std::optional<int64_t> ranks = config::parse_integer(text);
  if (!ranks || *ranks < 1 || *ranks > 64)
    fail("[command line] --ranks is '{}'; expected a number of ranks from 1 to 64", text);
  recipes::RunConfig config;
  config::Schema schema = config::schema_of(config);
  parsed.load(schema);
  std::printf("%s\n", recipes::verify_layout(config, static_cast<int>(*ranks)).c_str());
  return 0;
}

}  // namespace

void add_verify_layout(Program& program) {
  program.add("verify-layout", "Prove that several ranks train what one rank trains.", [](Options& options) {
    auto arguments = std::make_shared<std::vector<std::string>>();
    options.raw(*arguments);
    return [arguments] { return verify(*arguments); };
  });
}

}  // namespace temper::cli
