#include "recipes/grpo/critic_keys.h"

#include "base/error.h"
#include "recipes/grpo/grpo_keys.h"
#include "recipes/parts/second_model.h"

namespace temper::recipes {
namespace {

// The first key that is set, or nothing.
std::string_view set_key(const CriticKeys& c) {
  const CriticKeys unset;
  if (!c.path.empty()) return "path";
  if (c.lr) return "lr";
  if (c.rank) return "rank";
  if (c.alpha) return "alpha";
  if (!c.target_modules.empty()) return "target_modules";
  if (c.warmup_updates != unset.warmup_updates) return "warmup_updates";
  if (c.clip != unset.clip) return "clip";
  if (c.gamma != unset.gamma) return "gamma";
  if (c.lambda != unset.lambda) return "lambda";
  return c.bootstrap_truncated ? "bootstrap_truncated" : "";
}

}  // namespace

void describe(config::Schema& s, CriticKeys& c) {
  s.field("path", c.path,
          "The folder of the model that the critic starts from. Omitted: model.path. Its values are those of "
          "score.weight, or 0 at first where the folder has none.")
      .path();
  s.field("lr", c.lr, "The critic's learning rate, which is constant. Omitted: train.optimizer.lr.").above(0);
  s.field("rank", c.rank,
          "Train the critic by an adapter (LoRA) of this rank and its head, and keep the rest as it is. "
          "Omitted: all of the critic is trained.")
      .at_least(1);
  s.field("alpha", c.alpha, "The adapter's update is scaled by alpha / rank. Omitted: twice the rank.")
      .above(0);
  s.field("target_modules", c.target_modules,
          "The critic's modules to adapt, by name. Omitted: every linear but routers and experts.");
  s.field("warmup_updates", c.warmup_updates,
          "The number of first updates, of train.steps, that train the critic alone; the policy stays as it "
          "is.")
      .at_least(0);
  s.field(
       "clip", c.clip,
       "Value clipping: how far a value in the loss may be from the one before the updates of a rollout; 0 "
       "is no clipping.")
      .at_least(0);
  s.field("gamma", c.gamma, "The discount factor of rewards, for each token.").above(0).at_most(1);
  s.field("lambda", c.lambda, "How far advantages look: 0 to the next value, 1 to the rewards alone (GAE).")
      .at_least(0)
      .at_most(1);
  s.field(
      "bootstrap_truncated", c.bootstrap_truncated,
      "Bootstrap answers that were cut off with the critic's value after their last token. Otherwise that "
      "value is 0, as after other answers.");
}

void check_critic(const RunConfig& config, const GrpoKeys& keys) {
  const bool learns_values = keys.preset().source == losses::AdvantageSource::kGae;
  if (!learns_values) {
    if (const std::string_view key = set_key(keys.critic); !key.empty())
      fail("[grpo.critic.{}] is set, but loss {} has no critic; leave it out, or set loss: ppo", key,
           keys.loss);
    return;
  }
  if (config.train.steps > 0 && keys.critic.warmup_updates >= config.train.steps)
    fail(
        "[grpo.critic.warmup_updates] is {}, but train.steps is {}: the policy would learn nothing; set "
        "fewer, or more steps",
        keys.critic.warmup_updates, config.train.steps);
  for (const auto& [set, key] : {std::pair{keys.critic.alpha.has_value(), "alpha"},
                                 {!keys.critic.target_modules.empty(), "target_modules"}})
    if (set && !keys.critic.rank)
      fail("[grpo.critic.{}] is set, but the critic has no adapter; set grpo.critic.rank, or leave it out",
           key);
  if (config.adapters.size() > 1)
    fail("[adapters] there are {}, but a critic is of one policy; train one adapter at a time with loss ppo",
         config.adapters.size());
  check_second_model(config, "grpo.critic.path", keys.critic.path, "policy and critic",
                     "choose a model of the same family");
}

std::optional<CriticSettings> critic_settings(const RunConfig& config) {
  const GrpoKeys& keys = grpo_keys(config);
  if (keys.preset().source != losses::AdvantageSource::kGae) return std::nullopt;
  const CriticKeys& c = keys.critic;
  CriticSettings wish{c.path.empty() ? config.model.path : c.path, c.lr.value_or(config.train.optimizer.lr),
                      c.clip, c.warmup_updates};
  if (c.rank) {
    LoraConfig& lora = wish.lora.emplace();
    lora.rank = *c.rank;
    lora.alpha = c.alpha.value_or(2 * static_cast<double>(*c.rank));
    if (!c.target_modules.empty()) lora.targets = {.names = c.target_modules};
    lora.modules_to_save = {"score"};
  }
  return wish;
}

}  // namespace temper::recipes
