#include "recipes/plans/run_kernels.h"

#include <algorithm>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoints/states/training_state.h"
#include "ops/attention/paged_attention.h"
#include "ops/dropout/dropout.h"
#include "ops/latent_decode/latent_decode.h"
#include "ops/lora_linear/lora_linear.h"
#include "ops/lora_moe_experts/lora_moe_experts.h"
#include "ops/measure.h"
#include "ops/report.h"
#include "ops/sample/sample.h"
#include "ops/token_log_probs/token_log_probs.h"
#include "recipes/keys/adapter_config.h"
#include "recipes/keys/recipe.h"
#include "recipes/parts/run_files.h"

namespace temper::recipes {
namespace {

// "all-linear", the default, leaves out experts.
bool may_adapt_experts(const AdapterConfig& adapter) {
  const auto others = std::count(adapter.target_modules.begin(), adapter.target_modules.end(), "all-linear") <
                      std::ssize(adapter.target_modules);
  return others || !adapter.from.empty() || !adapter.target_parameters.empty() ||
         !adapter.target_regex.empty();
}

bool computes(const RunConfig& config, const std::string& op) {
  const auto drops = [](const AdapterConfig& adapter) {
    return adapter.dropout.value_or(adapter.from.empty() ? 0 : 1) > 0;  // a folder may say so
  };
  for (const std::string_view generates :
       {ops::PagedAttention::kName, ops::LatentDecode::kName, ops::Sample::kName, ops::TokenLogProbs::kName})
    if (op == generates) return recipe_of(config).batches != nullptr || config.eval.exact_match > 0;
  if (op == ops::LoraLinear::kName) return !config.adapters.empty();
  if (op == ops::LoraMoeExperts::kName)
    return std::any_of(config.adapters.begin(), config.adapters.end(), may_adapt_experts);
  if (op == ops::Dropout::kName) return std::any_of(config.adapters.begin(), config.adapters.end(), drops);
  return true;
}

ops::Preferences fresh_preferences(const RunConfig& config, const HardwareFacts& facts) {
  ops::Preferences preferences{ops::remembered(facts, config.model.dtype)};
  const ops::FieldValues wanted = recipe_of(config).kernels(config, false);
  if (wanted.empty()) return preferences;
  for (const auto& [field, kernel] : wanted) preferences.kernels[field] = kernel;
  preferences.because = fmt::format("as recipe {} wants it, or measured here", config.recipe);
  return preferences;
}

}  // namespace

bool has_states(const RunConfig& config) {
  const auto has = [](const RunConfig& run) {
    return !checkpoints::list_states(RunFiles{run.output}.states()).empty();
  };
  const auto adapter_has = [&](const AdapterConfig& adapter) { return has(run_of_adapter(config, adapter)); };
  return config.adapters.empty() ? has(config)
                                 : std::any_of(config.adapters.begin(), config.adapters.end(), adapter_has);
}

ops::Preferences preferred_kernels(const RunConfig& config, const HardwareFacts& facts) {
  const RunFiles files{config.output};
  if (!exists(files.kernels()) || !has_states(config)) return fresh_preferences(config, facts);
  ops::FieldValues before;
  const Json kernels = Json::parse_file(files.kernels());
  if (const Json* hardware = kernels.find("hardware");
      hardware != nullptr && *hardware != Json(facts.hardware)) {
    log_warning(fmt::format("the run was on {} before and is on {} now: it resumes, but not bit for bit",
                            kernels.at("device").dump(), facts.name));
    return fresh_preferences(config, facts);
  }
  // The same kernels on another device of the class use its own instructions and algorithms.
  if (const Json* device = kernels.find("device"); device != nullptr && *device != Json(facts.name))
    log_warning(
        fmt::format("the run was on {} before and is on \"{}\" now: it resumes with the same kernels, "
                    "but results may differ in their last bits from now on",
                    device->dump(), facts.name));
  try {
    for (const Json& choice : kernels.at("choices").as_array())
      if (choice.at("modules").as_string() == "*" && choice.at("kernel").is_string() &&
          ops::successor_of(choice.at("field").as_string()).empty())
        before[ops::field_of(choice.at("field").as_string())] = choice.at("kernel").as_string();
  } catch (const Error& error) {
    fail("[{}] choices: {}; the file is damaged: restore it, or remove it to choose the kernels again",
         files.kernels(), error.what());
  }
  return {std::move(before), "as earlier in this run"};
}

std::vector<ops::Choice> kernels_of_run(const RunConfig& config, const ops::BoundOps& ops) {
  std::vector<ops::Choice> choices = ops.choices();
  std::erase_if(choices, [&](const ops::Choice& choice) {
    return choice.written.empty() && !computes(config, choice.op);
  });
  return choices;
}

std::string describe_kernels(const RunConfig& config, const ops::BoundOps& ops, const HardwareFacts& facts,
                             bool verbose) {
  const std::vector<ops::Choice> choices = kernels_of_run(config, ops);
  if (verbose) return fmt::format("kernels:\n{}", ops::explain(choices, facts));
  std::vector<ops::Choice> used = choices, unread = choices;
  std::erase_if(used, [&](const ops::Choice& choice) { return !computes(config, choice.op); });
  std::string text = fmt::format("kernels: {}; -v says why", ops::summarize(used));
  std::erase_if(unread, [](const ops::Choice& choice) { return !choice.op.empty(); });
  if (!unread.empty()) text += fmt::format("\n{}", ops::explain(unread, facts));
  return text;
}

}  // namespace temper::recipes
