#include "recipes/grpo/answers/answer_settings.h"

#include <set>

#include "base/error.h"

namespace temper::recipes {
namespace {

constexpr std::string_view kOrder[] = {"loss",
                                       "group_size",
                                       "prompts_per_rollout",
                                       "updates_per_rollout",
                                       "epochs",
                                       "max_new_tokens",
                                       "temperature",
                                       "top_k",
                                       "top_p",
                                       "min_p",
                                       "stop",
                                       "rewards",
                                       "on_reward_error",
                                       "on_truncated",
                                       "dynamic_sampling",
                                       "max_rounds",
                                       "batch",
                                       "cache_tokens",
                                       "sleep",
                                       "batch_invariant",
                                       "rollout_parallel",
                                       "check_sync",
                                       "beta",
                                       "kl",
                                       "kl_in",
                                       "unbiased_kl",
                                       "reference",
                                       "clip_low",
                                       "clip_high",
                                       "dual_clip",
                                       "ratio_max",
                                       "mean",
                                       "advantage_scale",
                                       "correction",
                                       "rollout_log_probs",
                                       "correction_cap",
                                       "correction_low",
                                       "entropy",
                                       "max_log_prob_gap",
                                       "routing_replay",
                                       "share_prompts",
                                       "critic"};

// Keys that are in none of the groups that are written.
void add_newer(const config::Schema& schema, const config::Schema& unset, const std::string& prefix,
               const std::set<const config::Field*>& written, Json::Object& settings) {
  for (const auto& field : schema.fields()) {
    const config::Field& other = *unset.find(field->name);
    if (written.contains(field.get())) continue;
    if (field->kind == config::Field::Kind::kGroup)
      add_newer(*field->group, *other.group, prefix + field->name + ".", written, settings);
    else if (Json value = config::value_of(*field); value != config::value_of(other))
      settings.emplace_back(prefix + field->name, std::move(value));
  }
}

}  // namespace

Json settings_of_answers(GrpoKeys keys) {
  keys.engine.batch = {};
  keys.engine.cache_tokens = {};
  keys.engine.sleep = {};
  keys.engine.check_sync = {};
  const config::Schema schema = config::schema_of(keys);
  Json::Object settings;
  std::set<const config::Field*> written;
  for (const std::string_view name : kOrder) {
    const config::Field* const former = schema.find_former(name).first;
    const config::Field* const field = former != nullptr ? former : schema.find(name);
    invariant(field != nullptr, "a key of older versions has no name now");
    written.insert(field);
    settings.emplace_back(std::string(name), config::value_of(*field));
  }
  GrpoKeys unset;
  add_newer(schema, config::schema_of(unset), "", written, settings);
  return settings;
}

}  // namespace temper::recipes
