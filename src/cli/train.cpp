#include <cstdio>
#include <memory>

#include "base/error.h"
#include "base/log.h"
#include "cli/key_help.h"
#include "cli/program.h"
#include "cli/run_arguments.h"
#include "collectives/launch.h"
#include "collectives/launched.h"
#include "collectives/local/local.h"
#include "collectives/start_ranks.h"
#include "config/print.h"
#include "config/scalars.h"
#include "recipes/mesh.h"
#include "recipes/training_loop.h"

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
  --data.max_length 2048          the most tokens in a row (1024)
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
  config::Schema schema = config::schema_of(run.config);
  parsed.load(schema);
  run.yaml = config::dump(schema);
  run.options = {.dry_run = parsed.has("--dry-run"),
                 .explain_memory = parsed.has("--explain-memory"),
                 .verbose = parsed.has("-v") || parsed.has("--verbose"),
                 .profile_steps = parsed.has("--profile") ? 10 : 0};
  return run;
}

void train_as_rank(collectives::Group& ranks, const RunArguments& parsed) {
  if (ranks.rank() != 0) silence_log();
  const Run run = read_run(parsed);
  recipes::train(run.config, run.yaml, run.options, ranks);
}

int64_t number_of_ranks(const std::string& text) {
  const std::optional<int64_t> ranks = config::parse_integer(text);
  if (!ranks || *ranks < 1)
    fail("[command line] --ranks is '{}'; expected a number of ranks, at least 1", text);
  return *ranks;
}

// Mistakes in the configuration are told before any rank starts.
int train_on_ranks(int64_t ranks, const RunArguments& parsed) {
  const Run run = read_run(parsed);
  recipes::check_run(run.config);
  recipes::mesh_of(run.config, static_cast<int>(ranks));
  if (run.options.dry_run) {
    recipes::plan_run(run.config, run.yaml, run.options, static_cast<int>(ranks));
    return 0;
  }
  std::vector<std::string> command{"train"};
  if (!parsed.yaml_file.empty()) command.push_back(parsed.yaml_file);
  command.insert(command.end(), parsed.chosen.begin(), parsed.chosen.end());
  command.insert(command.end(), parsed.flags.begin(), parsed.flags.end());
  return collectives::start_ranks(static_cast<int>(ranks), command);
}

int train(const std::vector<std::string>& arguments) {
  if (arguments.empty()) {
    std::fputs(kUsage, stdout);
    return 0;
  }
  if (show_help(arguments, kUsage)) return 0;
  RunArguments parsed =
      parse_run_arguments(arguments, {"--dry-run", "--explain-memory", "--profile", "-v", "--verbose"});
  const std::optional<std::string> ranks = parsed.take("--ranks");
  if (collectives::launched()) {
    if (ranks)
      fail("[command line] --ranks is {}, but a launcher has started the ranks; leave it out", *ranks);
    collectives::launch("mpi", {}, [&](collectives::Group& group) { train_as_rank(group, parsed); });
    return 0;
  }
  if (ranks && number_of_ranks(*ranks) > 1) return train_on_ranks(number_of_ranks(*ranks), parsed);
  train_as_rank(collectives::alone(), parsed);
  return 0;
}

}  // namespace

void add_train(Program& program) {
  program.add("train", "Train a model, or adapters of it.", [](Options& options) {
    auto arguments = std::make_shared<std::vector<std::string>>();
    options.raw(*arguments);
    return [arguments] { return train(*arguments); };
  });
}

}  // namespace temper::cli
