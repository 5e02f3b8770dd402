#include <cstdio>

#include "base/console.h"
#include "base/error.h"
#include "cli/arguments/key_help.h"
#include "cli/arguments/program.h"
#include "cli/arguments/ranks.h"
#include "config/scalars.h"
#include "recipes/commands/measure_times.h"
#include "recipes/commands/plan_report.h"

namespace temper::cli {
namespace {

constexpr const char* kPlanUsage =
    R"(List how several ranks can divide a run, with memory and speed, before it runs.

  temper plan RUN.yaml --ranks N [--KEY VALUE ...]   list the fastest layouts
  temper plan --measure FILE [--ranks N]             time this machine for them

Of each layout (the group parallel) that fits: memory of the rank that needs
most, time of an update, shares of it in which pipeline stages wait (bubble)
and devices wait for collectives (waits), bytes that a rank sends, tokens/s.
What the run names stays. Only the model's config.json is needed, and rows
where data.train is written (docs/scale.md).

  --ranks N           the number of ranks, 1 to 65536 (1)
  --hardware NAME     a100, b200, h100, h200 or l40s (the run's device)
  --times FILE        times that --measure wrote, instead of published figures
  --ranks-per-host N  ranks that share a host (8; on a CPU all)
  --top N             the number of layouts to list (10)
  --rehearse N        the most layouts to rehearse, fastest expected first (300)
  --json              print JSON
  --measure FILE      time ops on --device (cpu), in --dtype (bfloat16); with
                      several ranks also what joins them; up to a minute
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

recipes::MeasureOptions measure_options(RunArguments arguments) {
  recipes::MeasureOptions options;
  arguments.take("--ranks");
  options.file = arguments.take("--measure").value();
  options.device = arguments.take("--device").value_or(options.device);
  const std::string dtype = arguments.take("--dtype").value_or("bfloat16");
  if (dtype != "float32" && dtype != "bfloat16")
    fail("[command line] --dtype is '{}'; expected float32 or bfloat16", dtype);
  options.dtype = dtype == "float32" ? DType::kF32 : DType::kBF16;
  const bool has_others = !arguments.flags.empty() || !arguments.chosen.empty();
  if (has_others || !arguments.yaml_file.empty())
    fail("[command line] --measure times typical models; leave out '{}'",
         !arguments.yaml_file.empty() ? arguments.yaml_file
         : arguments.flags.empty()    ? arguments.chosen.front()
                                      : arguments.flags.front());
  return options;
}

int measure(RunArguments& parsed) {
  return run_on_ranks(parsed, {.name = "plan",
                               .prepare =
                                   [&](int) {
                                     measure_options(parsed);
                                     return true;
                                   },
                               .run =
                                   [&](collectives::Group& ranks) {
                                     const std::string text =
                                         recipes::measure_times(measure_options(parsed), ranks);
                                     if (ranks.rank() == 0) print_line("{}", text);
                                   },
                               .saved = [] { return std::string(); }});
}

int plan(RunArguments& parsed) {
  recipes::PlanOptions options;
  constexpr int64_t kMostRanks = 65536, kMostLayouts = 1000;
  options.ranks = static_cast<int>(taken(parsed, "--ranks", 1, kMostRanks));
  options.ranks_of_host = static_cast<int>(taken(parsed, "--ranks-per-host", 0, kMostRanks));
  options.top = taken(parsed, "--top", options.top, kMostLayouts);
  options.rehearsals = taken(parsed, "--rehearse", options.rehearsals, kMostRanks);
  options.hardware = parsed.take("--hardware").value_or("");
  options.times = parsed.take("--times").value_or("");
  recipes::RunConfig config;
  parsed.load(config);
  const recipes::LayoutPlan found = recipes::plan_layouts(config, options);
  if (parsed.has("--json"))
    print_line("{}", recipes::to_json(found).dump(2));
  else
    print_line("{}", recipes::describe(found));
  return 0;
}

int run(const std::vector<std::string>& arguments) {
  if (arguments.empty()) {
    std::fputs(kPlanUsage, stdout);
    return 0;
  }
  if (show_help(arguments, kPlanUsage)) return 0;
  RunArguments parsed = parse_run_arguments(arguments, {"--json"});
  return RunArguments(parsed).take("--measure") ? measure(parsed) : plan(parsed);
}

}  // namespace

void add_plan(Program& program) {
  program.add_raw("plan", "List how ranks can divide a run, with memory and speed.", run);
}

}  // namespace temper::cli
