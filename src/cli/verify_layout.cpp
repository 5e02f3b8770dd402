#include <cstdio>

#include "base/console.h"
#include "base/error.h"
#include "cli/arguments/key_help.h"
#include "cli/arguments/program.h"
#include "cli/arguments/run_arguments.h"
#include "config/scalars.h"
#include "recipes/commands/verify_layout.h"

namespace temper::cli {
namespace {

constexpr const char* kLayoutUsage =
    R"(Prove that several ranks train what one rank trains, before the run.

  temper verify-layout RUN.yaml --ranks N [--KEY VALUE ...]

Trains a copy of the run's model of two layers (one of each kind), or the run's
adapters of it, by the run's recipe, on one rank, and as N ranks divide the work
by the group parallel, on this machine's processor. Compares losses, every
gradient before clipping, their norms and weights; the exit code is 1 where they
differ by more than rounding. Quantizers are left out: a difference in the last
bit may choose another code.

  --ranks N      the number of ranks (2)
  --updates N    the number of updates (3)
  --dtype NAME   float32, or bfloat16, where rounding allows more (float32)
  --help all, --help KEY   every key, or one of them
)";

int64_t taken(RunArguments& arguments, const std::string& flag, int64_t otherwise, int64_t most) {
  const std::optional<std::string> text = arguments.take(flag);
  if (!text) return otherwise;
  const std::optional<int64_t> number = config::parse_integer(*text);
  if (!number || *number < 1 || *number > most)
    fail("[command line] {} is '{}'; expected a number from 1 to {}", flag, *text, most);
  return *number;
}

int verify(const std::vector<std::string>& arguments) {
  if (arguments.empty()) {
    std::fputs(kLayoutUsage, stdout);
    return 0;
  }
  if (show_help(arguments, kLayoutUsage)) return 0;
  RunArguments parsed = parse_run_arguments(arguments, {});
  recipes::VerifyOptions options;
  options.ranks = static_cast<int>(taken(parsed, "--ranks", options.ranks, 64));
  options.updates = taken(parsed, "--updates", options.updates, 1000);
  const std::string dtype = parsed.take("--dtype").value_or("float32");
  if (dtype != "float32" && dtype != "bfloat16")
    fail("[command line] --dtype is '{}'; expected float32 or bfloat16", dtype);
  options.dtype = dtype == "float32" ? DType::kF32 : DType::kBF16;
  recipes::RunConfig config;
  parsed.load(config);
  print_line("{}", recipes::verify_layout(config, options));
  return 0;
}

}  // namespace

void add_verify_layout(Program& program) {
  program.add_raw("verify-layout", "Prove that several ranks train what one rank trains.", verify);
}

}  // namespace temper::cli
