#include "recipes/keys/adapter_config.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "checkpoints/adapter_folder.h"
#include "checkpoints/files/names.h"

namespace temper::recipes {
namespace {

std::string where_of(const AdapterConfig& adapter) { return fmt::format("adapters.{}.", adapter.name); }

// Keys that decide what is adapted and how; where an adapter starts from another, the other's folder holds
// them.
std::vector<std::string> written_shape(const AdapterConfig& adapter) {
  std::vector<std::string> keys;
  const auto add = [&](bool written, const char* key) {
    if (written) keys.emplace_back(key);
  };
  add(adapter.rank.has_value(), "rank");
  add(adapter.alpha.has_value(), "alpha");
  add(adapter.rslora.has_value(), "rslora");
  add(adapter.bias.has_value(), "bias");
  add(!adapter.target_modules.empty(), "target_modules");
  add(!adapter.target_regex.empty(), "target_regex");
  add(!adapter.target_parameters.empty(), "target_parameters");
  add(!adapter.exclude_modules.empty(), "exclude_modules");
  add(!adapter.exclude_regex.empty(), "exclude_regex");
  add(!adapter.modules_to_save.empty(), "modules_to_save");
  add(!adapter.patterns.empty(), "patterns");
  return keys;
}

LoraConfig lora_of(const AdapterConfig& adapter) {
  LoraConfig lora;
  lora.rank = adapter.rank.value_or(16);
  lora.alpha = adapter.alpha.value_or(2 * static_cast<double>(lora.rank));
  lora.stabilized = adapter.rslora.value_or(false);
  lora.dropout = adapter.dropout.value_or(0);
  lora.bias = adapter.bias.value_or(LoraBias::kNone);
  lora.parameters = adapter.target_parameters;
  if (!adapter.target_modules.empty() || !adapter.target_regex.empty() || !adapter.target_parameters.empty())
    lora.targets = {adapter.target_modules, adapter.target_regex};
  lora.excluded = {adapter.exclude_modules, adapter.exclude_regex};
  lora.modules_to_save = adapter.modules_to_save;
  for (const AdapterPattern& pattern : adapter.patterns) {
    if (pattern.rank) lora.rank_pattern.emplace_back(pattern.modules, *pattern.rank);
    if (pattern.alpha) lora.alpha_pattern.emplace_back(pattern.modules, *pattern.alpha);
    if (!pattern.rank && !pattern.alpha)
      fail("[{}patterns] '{}' has neither a rank nor an alpha", where_of(adapter), pattern.modules);
  }
  return lora;
}

// Keys that replace those of `train`.
void describe_updates(config::Schema& s, AdapterConfig& c) {
  s.field("lr", c.lr, "The adapter's peak learning rate. Omitted: train.optimizer.lr.").above(0);
  s.field("weight_decay", c.weight_decay,
          "The adapter's weight decay. Omitted: train.optimizer.weight_decay.")
      .at_least(0);
  s.field("steps", c.steps, "The adapter's number of updates. Omitted: train.steps.")
      .at_least(0)
      .at_most(kMostSteps);
  s.field("epochs", c.epochs, "The adapter's number of passes over its data. Omitted: train.epochs.")
      .above(0)
      .at_most(kMostEpochs);
  s.field("rows_per_step", c.rows_per_step, "The adapter's rows in one update. Omitted: train.rows_per_step.")
      .at_least(1)
      .at_most(kMostRows);
  s.choice("schedule", c.schedule, schedule_types(),
           "How the adapter's learning rate changes. Omitted: train.schedule.type.");
  s.field("warmup_steps", c.warmup_steps,
          "The adapter's updates of warm-up. Omitted: train.schedule.warmup_steps.")
      .at_least(0);
  s.field(
       "final_fraction", c.final_fraction,
       "The adapter's last learning rate, as a fraction of its peak. Omitted: train.schedule.final_fraction.")
      .at_least(0)
      .at_most(1);
  s.field("seed", c.seed,
          "The seed of the adapter's start, its dropout and the order of its data. Omitted: train.seed.")
      .at_least(0);
}

}  // namespace

void describe(config::Schema& s, AdapterPattern& c) {
  s.field("modules", c.modules,
          "A regular expression for names of modules; it may match what follows a dot of a name.")
      .required();
  s.field("rank", c.rank, "The rank for these modules. Omitted: the adapter's.");
  s.field("alpha", c.alpha, "The alpha for these modules. Omitted: the adapter's.");
}

void describe(config::Schema& s, AdapterConfig& c) {
  s.field("name", c.name, "The adapter's name in reports, and that of its folder.");
  s.field("from", c.from, "The folder of an adapter to start from; it decides which modules are adapted.")
      .path();
  s.field("rank", c.rank, "The rank of the update's matrices. Omitted: 16.");
  s.field("alpha", c.alpha, "The update is scaled by alpha / rank. Omitted: twice the rank.");
  s.field("rslora", c.rslora, "Scale the update by alpha / sqrt(rank).");
  s.field("dropout", c.dropout, "The dropout of the update's input during training. Omitted: 0.")
      .at_least(0)
      .below(1);
  s.choice("bias", c.bias,
           {{"none", LoraBias::kNone}, {"all", LoraBias::kAll}, {"lora_only", LoraBias::kLoraOnly}},
           "The biases that are also trained: none, all, or those of adapted modules.");
  s.field("target_modules", c.target_modules,
          "The modules to adapt, by name ([q_proj, v_proj]). Omitted: [all-linear], every linear but the "
          "head, routers and experts.");
  s.field("target_regex", c.target_regex,
          "A regular expression that matches whole names of further modules to adapt.");
  s.field(
      "target_parameters", c.target_parameters,
      "The stacked tensors of experts to adapt, by name ([mlp.experts.gate_up_proj, mlp.experts.down_proj]); "
      "where they are given and target_modules is omitted, nothing else is adapted.");
  s.field("exclude_modules", c.exclude_modules, "The modules that are not adapted, by name.");
  s.field("exclude_regex", c.exclude_regex,
          "A regular expression that matches whole names of further modules not to adapt.");
  s.field("modules_to_save", c.modules_to_save, "The modules that are trained in full, as copies.");
  s.list("patterns", c.patterns,
         "Other ranks and alphas for some modules; the first expression that matches counts.");
  s.list("train", c.train, "The adapter's own data, written as data.train. Omitted: data.train.")
      .shorthand("path");
  s.list(
       "eval", c.eval,
       "The adapter's own held-out data, written as data.eval. An adapter that has its own train and no eval "
       "is not evaluated.")
      .shorthand("path");
  describe_updates(s, c);
}

void check_adapters(const RunConfig& config) {
  if (config.model.base_dtype && config.adapters.empty())
    fail(
        "[model.base_dtype] is {}, which cannot be trained, but there are no adapters: remove it, or add "
        "some",
        to_string(*config.model.base_dtype));
  std::vector<std::string> names;
  for (const AdapterConfig& adapter : config.adapters) {
    if (!checkpoints::is_plain_name(adapter.name))
      fail("[adapters] the name '{}' cannot be a folder's; use letters, digits, '-' and '_'", adapter.name);
    if (std::find(names.begin(), names.end(), adapter.name) != names.end())
      fail("[adapters] two of them are called '{}'; give each a name of its own", adapter.name);
    names.push_back(adapter.name);
  }
}

AdapterChoice choose_adapter(const AdapterConfig& adapter, const WeightTable& base) {
  if (adapter.from.empty()) {
    const LoraConfig lora = lora_of(adapter);
    return {lora, plan_lora(base, lora, where_of(adapter))};
  }
  if (const auto written = written_shape(adapter); !written.empty())
    fail("[{}from] {} decides which modules are adapted; remove: {}", where_of(adapter), adapter.from,
         join(written));
  const std::string& from = source_of(adapter);
  const checkpoints::AdapterConfig written = checkpoints::read_adapter_config(from);
  AdapterChoice choice{written.lora, {}};
  choice.plan =
      plan_lora_of(base, choice.lora, checkpoints::ModelFolder::open_adapter(from, base).names(), from);
  checkpoints::check_named(written, choice.plan, from);
  check_products(base, choice.plan, from);
  choice.lora.dropout = adapter.dropout.value_or(choice.lora.dropout);
  check_dropout(choice.plan, choice.lora.dropout, where_of(adapter) + "dropout");
  return choice;
}

const std::string& source_of(const AdapterConfig& adapter) {
  return adapter.begun_from.empty() ? adapter.from : adapter.begun_from;
}

RunConfig run_of_adapter(const RunConfig& config, const AdapterConfig& adapter) {
  RunConfig run = config;
  AdapterConfig own = adapter;
  const auto take = [](auto& value, auto& given) {
    if (given) value = *std::exchange(given, std::nullopt);
  };
  if (!own.train.empty()) {
    run.data.train = std::exchange(own.train, {});
    run.data.eval = std::exchange(own.eval, {});
  } else if (!own.eval.empty()) {
    run.data.eval = std::exchange(own.eval, {});
  }
  // A number of updates of its own, or of passes, replaces either of the run's.
  if (own.epochs) run.train.steps = 0;
  if (own.steps) run.train.epochs.reset();
  take(run.train.epochs, own.epochs);
  take(run.train.steps, own.steps);
  if (own.rows_per_step) run.train.tokens_per_step = 0;
  take(run.train.rows_per_step, own.rows_per_step);
  take(run.train.optimizer.lr, own.lr);
  take(run.train.optimizer.weight_decay, own.weight_decay);
  take(run.train.schedule.type, own.schedule);
  take(run.train.schedule.warmup_steps, own.warmup_steps);
  take(run.train.schedule.final_fraction, own.final_fraction);
  take(run.train.seed, own.seed);
  run.output = join_path(join_path(config.output, "adapters"), adapter.name);
  run.adapters = {own};
  return run;
}

}  // namespace temper::recipes
