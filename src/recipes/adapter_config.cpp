#include "recipes/adapter_config.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "checkpoints/adapter_folder.h"
#include "checkpoints/names.h"

namespace temper::recipes {
namespace {

std::string where_of(const AdapterConfig& adapter) { return fmt::format("adapters.{}.", adapter.name); }

// Keys that say what is adapted and how: of an adapter that goes on they stand in its folder.
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
  if (!adapter.target_modules.empty() || !adapter.target_regex.empty())
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

}  // namespace

void describe(config::Schema& s, AdapterPattern& c) {
  s.field("modules", c.modules, "an expression; it may match the end of a module's name behind a dot")
      .required();
  s.field("rank", c.rank, "instead of the adapter's");
  s.field("alpha", c.alpha, "instead of the adapter's");
}

void describe(config::Schema& s, AdapterConfig& c) {
  s.field("name", c.name, "of its folder, and in reports");
  s.field("from", c.from, "an adapter's folder to go on from; it says what is adapted");
  s.field("rank", c.rank, "of the update's matrices; omitted: 16");
  s.field("alpha", c.alpha, "the update is scaled by alpha / rank; omitted: twice the rank");
  s.field("rslora", c.rslora, "scale by alpha / sqrt(rank)");
  s.field("dropout", c.dropout, "of what the update reads, while training; omitted: 0").at_least(0).below(1);
  s.choice("bias", c.bias,
           {{"none", LoraBias::kNone}, {"all", LoraBias::kAll}, {"lora_only", LoraBias::kLoraOnly}},
           "the biases that are trained besides: none, all, or those of adapted modules");
  s.field("target_modules", c.target_modules,
          "modules to adapt, by name ([q_proj, v_proj]); omitted: [all-linear], every linear but the head");
  s.field("target_regex", c.target_regex, "an expression of whole names, besides");
  s.field("exclude_modules", c.exclude_modules, "modules that are not adapted");
  s.field("exclude_regex", c.exclude_regex, "an expression of whole names, besides");
  s.field("modules_to_save", c.modules_to_save, "modules trained whole, as copies");
  s.list("patterns", c.patterns, "other ranks and alphas for some modules; the first that matches counts");
  s.list("train", c.train, "its own data, as data.train; omitted: data.train").shorthand("path");
  s.list("eval", c.eval,
         "its own held-out data, as data.eval; with train of its own and none of these it is not evaluated")
      .shorthand("path");
  s.field("lr", c.lr, "omitted: train.optimizer.lr").above(0);
  s.field("weight_decay", c.weight_decay, "omitted: train.optimizer.weight_decay").at_least(0);
  s.field("steps", c.steps, "omitted: train.steps").at_least(0);
  s.field("epochs", c.epochs, "omitted: train.epochs").above(0);
  s.field("rows_per_step", c.rows_per_step, "omitted: train.rows_per_step").at_least(1);
  s.choice("schedule", c.schedule, schedule_types(), "omitted: train.schedule.type");
  s.field("warmup_steps", c.warmup_steps, "omitted: train.schedule.warmup_steps").at_least(0);
  s.field("final_fraction", c.final_fraction, "omitted: train.schedule.final_fraction")
      .at_least(0)
      .at_most(1);
  s.field("seed", c.seed, "of its start, its dropout and its data's order; omitted: train.seed").at_least(0);
}

void check_adapters(const RunConfig& config) {
  if (config.model.base_dtype && config.adapters.empty())
    fail(
        "[model.base_dtype] is {}, which cannot be trained, but there are no adapters: leave it out, or add "
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
    fail("[{}from] {} says what is adapted; leave out: {}", where_of(adapter), adapter.from, join(written));
  const std::string& from = source_of(adapter);
  AdapterChoice choice{checkpoints::read_adapter_config(from).lora, {}};
  choice.plan = plan_lora_of(base, choice.lora, checkpoints::ModelFolder::open_adapter(from).names(), from);
  check_products(base, choice.plan, from);
  choice.lora.dropout = adapter.dropout.value_or(choice.lora.dropout);
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
