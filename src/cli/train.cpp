#include <cstdio>

#include "cli/arguments/key_help.h"
#include "cli/arguments/program.h"
#include "cli/arguments/ranks.h"
#include "config/print.h"
#include "recipes/loop/saved_steps.h"
#include "recipes/loop/train.h"
#include "recipes/plans/mesh.h"

namespace temper::cli {
namespace {

constexpr const char* kUsage =
    R"(Train a model, or adapters (LoRA) of it, as a YAML file and flags say.

  temper train RUN.yaml [--KEY VALUE ...]

What most runs set, as flags; in YAML the dots are levels:
  --model.path models/Qwen3-0.6B  the model's folder, in Hugging Face format
  --model.dtype bfloat16          the precision of its parameters (float32)
  --data.train chat.jsonl         the rows to train on: docs/data.md
  --data.eval held-out.jsonl      the rows to evaluate on
  --data.max_length 2048          the most tokens in a row (1024 or the model's)
  --train.epochs 2                passes over the data (1); or --train.steps 500
  --train.rows_per_step 16        the rows of one update (8)
  --train.optimizer.lr 2e-5       the peak learning rate (1e-5)
  --adapters '[{rank: 16}]'       train an adapter (LoRA) instead of all weights
  --recipe preference             train on judged answers: docs/preference.md
  --device cuda                   compute on a GPU (cpu)
  --output runs/my-model          the run's folder (runs/sft)

  --ranks N         train on N ranks of this machine: docs/ranks.md
  --dry-run         check all of it, estimate memory and time, train nothing
  --explain-memory  print memory by region, planned and actual
  --profile         trace ten steps: a table, and trace.json for ui.perfetto.dev
  -v, --verbose     print why each kernel was chosen
  --help all, --help KEY   every key, or one of them (--help lr, --help data)
)";

struct Run {
  recipes::RunConfig config;
  std::string yaml;  // of all keys
  recipes::RunOptions options;
};

Run read_run(const RunArguments& parsed) {
  Run run;
  run.yaml = config::dump(parsed.load(run.config));
  run.options = {.dry_run = parsed.has("--dry-run"),
                 .explain_memory = parsed.has("--explain-memory"),
                 .verbose = parsed.has("-v") || parsed.has("--verbose"),
                 .profile_steps = parsed.has("--profile") ? 10 : 0};
  return run;
}

// Mistakes in the configuration are reported before any rank starts.
bool prepare_ranks(const Run& run, int ranks) {
  recipes::check_run(run.config);
  recipes::mesh_of(run.config, ranks);
  if (run.options.dry_run) recipes::plan_run(run.config, run.yaml, run.options, ranks);
  return !run.options.dry_run;
}

int train(const std::vector<std::string>& arguments) {
  if (arguments.empty()) {
    std::fputs(kUsage, stdout);
    return 0;
  }
  if (show_help(arguments, kUsage)) return 0;
  RunArguments parsed =
      parse_run_arguments(arguments, {"--dry-run", "--explain-memory", "--profile", "-v", "--verbose"});
  return run_on_ranks(parsed,
                      {.name = "train",
                       .prepare = [&](int ranks) { return prepare_ranks(read_run(parsed), ranks); },
                       .run =
                           [&](collectives::Group& ranks) {
                             const Run run = read_run(parsed);
                             recipes::train(run.config, run.yaml, run.options, ranks);
                           },
                       .saved = [&] { return recipes::describe_saved_steps(read_run(parsed).config); }});
}

}  // namespace

void add_train(Program& program) { program.add_raw("train", "Train a model, or adapters of it.", train); }

}  // namespace temper::cli
