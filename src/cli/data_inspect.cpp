#include <unistd.h>

#include <cstdio>
#include <optional>

#include "base/console.h"
#include "base/error.h"
#include "base/text.h"
#include "cli/arguments/key_help.h"
#include "cli/arguments/program.h"
#include "cli/arguments/run_arguments.h"
#include "data/inspect.h"
#include "data/inspect_pictures.h"
#include "recipes/keys/adapter_config.h"
#include "recipes/setup/recipe_inputs.h"

namespace temper::cli {
namespace {

constexpr const char* kUsage =
    R"(Show what a run would train on: rows as tokens with their loss mask, a summary.

  temper data inspect RUN.yaml [--KEY VALUE ...]
  temper data inspect --model.path models/Qwen3-0.6B --data.train chat.jsonl

  --rows N        print N rows (3)
  --first N       start with row N, counted from 0
  --eval          show data.eval, or what data.eval_fraction holds out
  --summary       print only the summary
  --adapter NAME  show the data of one of several adapters
  --help all, --help KEY   every key of RUN.yaml, or one (--help data.train)

Files and formats are those of data.train and data.eval (docs/data.md). Tokens
end with |; targets are green on a terminal and stand in [[ ]] elsewhere. The
exit code is 2 where no row is kept, and where a bad row would stop a run.
)";

int64_t take_number(RunArguments& parsed, const std::string& name, int64_t otherwise) {
  const std::optional<std::string> value = parsed.take(name);
  if (!value) return otherwise;
  if (value->empty() || value->size() > 12 || value->find_first_not_of("0123456789") != std::string::npos)
    fail("[{}] '{}' is not a number of rows", name, *value);
  return std::stoll(*value);
}

// The run of that adapter as if it were alone; where adapters have all the data, one must be named.
recipes::RunConfig run_of(const recipes::RunConfig& config, const std::optional<std::string>& adapter) {
  std::vector<std::string> names;
  for (const recipes::AdapterConfig& each : config.adapters) {
    if (each.name == adapter) return recipes::run_of_adapter(config, each);
    names.push_back(each.name);
  }
  if (adapter) fail("[--adapter] no adapter is called '{}'; there are [{}]", *adapter, join(names));
  if (config.data.train.empty() && !names.empty())
    fail("[data.train] is missing: adapters have data of their own; name one by --adapter: [{}]",
         join(names));
  return config;
}

// Rows with pictures are bad rows, since models learn from text alone: what a model would get of them.
std::string pictures_of(const data::Mixture& set, int64_t row, const std::string& model) {
  Json parsed;
  try {
    parsed = set.json(row);
  } catch (const Error&) {  // the row is bad because it is no JSON
    return "";
  }
  return data::describe_pictures(parsed, set.path(row), model);
}

int inspect(const std::vector<std::string>& arguments) {
  if (arguments.empty()) {
    std::fputs(kUsage, stdout);
    return 0;
  }
  if (show_help(arguments, kUsage)) return 0;
  RunArguments parsed = parse_run_arguments(arguments, {"--eval", "--summary"});
  const int64_t rows = take_number(parsed, "--rows", 3), first = take_number(parsed, "--first", 0);
  const std::optional<std::string> adapter = parsed.take("--adapter");
  recipes::RunConfig config;
  parsed.load(config);
  recipes::check_recipe(config);
  config = run_of(config, adapter);
  const recipes::RunSetup setup(config);
  const auto sets = recipes::DataSets::load(config, setup.text, data::Goal::kAny);
  if (parsed.has("--eval") && !sets.eval) fail("[data.eval] names no file, and data.eval_fraction is 0");
  const data::Mixture& set = parsed.has("--eval") ? *sets.eval : sets.train;
  const bool color = isatty(STDOUT_FILENO) != 0;
  for (int64_t i = first; !parsed.has("--summary") && i < std::min(first + rows, set.size()); ++i) {
    const data::ReadRow read = set.read(i);
    print_line("row {} ({})", i, set.place(i));
    if (!read.error.empty()) {
      print_line("  bad: {}", read.error);
      print_exactly(pictures_of(set, i, config.model.path) + "\n");
      continue;
    }
    print_exactly(data::describe_row(read.row, setup.text.tokenizer, color));
    if (read.row.format == data::RowFormat::kPromptOnly)
      print_line("other fields: {}", data::beside_prompt(set.json(i)).dump());
    print_exactly("\n");
  }
  // Summed up as the run would read the rows.
  const data::LoaderOptions options =
      parsed.has("--eval") ? recipes::eval_options(config) : recipes::loader_options(config);
  const data::DatasetSummary summary =
      data::summarize(set.with_goal(recipes::recipe_of(config).rows(config).goal), options);
  print_exactly(shown(data::describe(summary)));
  std::fflush(stdout);
  const int64_t bad = summary.counts().dropped.bad;
  if (bad > 0 && config.data.on_bad_row == data::OnBadRow::kStop)
    fail(
        "[data.on_bad_row] is stop: a run would stop here, at the first of {} bad rows; correct them, or set "
        "data.on_bad_row: skip to leave them out",
        bad);
  if (summary.counts().kept > 0) return 0;
  fail("[data] no row of {} is kept, so there is nothing to learn from; the summary above says why",
       set.describe());
}

}  // namespace

void add_data_inspect(Program& program) {
  program.add_raw("data inspect", "Print rows as tokens with their loss mask.", inspect);
}

}  // namespace temper::cli
