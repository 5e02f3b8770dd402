#include <gtest/gtest.h>

#include "config/load.h"
#include "recipes/grpo/answers/answer_settings.h"

namespace temper::recipes {
namespace {

std::string settings_with(const std::string& yaml) {
  GrpoKeys keys;
  config::Schema schema = config::schema_of(keys);
  config::load_text(schema, yaml, "grpo.yaml");
  return settings_of_answers(keys).dump();
}

// As the program wrote it, with the same keys, when all of them were in one group.
TEST(AnswerSettings, AreThoseOfOlderVersions) {
  const std::string before =
      R"({"loss": "grpo", "group_size": 4, "prompts_per_rollout": 4, "updates_per_rollout": 2, "epochs": 1, )"
      R"("max_new_tokens": 7, "temperature": 1.0, "top_k": 0, "top_p": 0.5, "min_p": 0.0, "stop": ["a"], )"
      R"("rewards": [], "on_reward_error": "stop", "on_truncated": "learn", "dynamic_sampling": true, )"
      R"("max_rounds": 3, "batch": 0, "cache_tokens": null, "sleep": [], "batch_invariant": null, )"
      R"("rollout_parallel": {"tensor": 2, "expert": null}, "check_sync": false, "beta": null, "kl": "k2", )"
      R"("kl_in": null, "unbiased_kl": false, "reference": "", "clip_low": 0.1, "clip_high": null, )"
      R"("dual_clip": null, "ratio_max": null, "mean": "tokens", "advantage_scale": null, )"
      R"("correction": "token", "rollout_log_probs": "full", "correction_cap": 3.0, "correction_low": 0.5, )"
      R"("entropy": 0.0, "max_log_prob_gap": 1.0, "routing_replay": false, "share_prompts": true, )"
      R"("critic": {"path": "", "lr": null, "rank": null, "alpha": null, "target_modules": [], )"
      R"("warmup_updates": 0, "clip": 0.2, "gamma": 1.0, "lambda": 0.95, "bootstrap_truncated": false}})";
  EXPECT_EQ(
      settings_with("group_size: 4\nprompts_per_rollout: 4\nupdates_per_rollout: 2\n"
                    "sampling: {max_new_tokens: 7, top_p: 0.5, stop: [a]}\n"
                    "filter: {dynamic_sampling: true, max_rounds: 3}\n"
                    "policy: {clip_low: 0.1, mean: tokens}\nkl: {estimator: k2}\n"
                    "correction: {type: token, cap: 3}\n"
                    "engine: {batch: 5, sleep: [gradients], parallel: {tensor: 2}, check_sync: true}\n"),
      before);
}

// Another value than the one that the key has.
Json another(const config::Field& field) {
  using Scalar = config::Type::Scalar;
  Json value = field.type.list ? Json() : field.get();
  switch (field.type.scalar) {
    case Scalar::kBool:
      value = value.is_null() || !value.as_bool();
      break;
    case Scalar::kInt:
      value = value.is_null() ? Json(7) : Json(value.as_int() + 1);
      break;
    case Scalar::kFloat:
      value = value.is_null() ? Json(0.25) : Json(value.as_double() + 0.25);
      break;
    case Scalar::kChoice:
      value =
          value == Json(field.type.choices.front()) ? field.type.choices.back() : field.type.choices.front();
      break;
    default:
      value = "another";
  }
  return field.type.list ? Json(Json::Array{value}) : value;
}

void find_values(const config::Schema& schema, const std::string& prefix, std::vector<std::string>& paths) {
  for (const auto& field : schema.fields()) {
    if (field->kind == config::Field::Kind::kValue) paths.push_back(prefix + field->name);
    if (field->kind == config::Field::Kind::kGroup)
      find_values(*field->group, prefix + field->name + ".", paths);
  }
}

// A key that is not among them would let a run take over answers that were sampled otherwise.
TEST(AnswerSettings, HaveEveryKeyThatMayNotChange) {
  GrpoKeys unset;
  std::vector<std::string> paths, without;
  find_values(config::schema_of(unset), "", paths);
  EXPECT_GT(paths.size(), 45u);
  for (const std::string& path : paths) {
    GrpoKeys keys;
    const config::Schema schema = config::schema_of(keys);
    const config::Field& field = *schema.find_path(path);
    field.set(another(field));
    if (settings_of_answers(keys).dump() == settings_of_answers({}).dump()) without.push_back(path);
  }
  EXPECT_EQ(without, (std::vector<std::string>{"engine.batch", "engine.cache_tokens", "engine.sleep",
                                               "engine.check_sync"}));
}

}  // namespace
}  // namespace temper::recipes
