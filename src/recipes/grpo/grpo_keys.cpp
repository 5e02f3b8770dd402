#include "recipes/grpo/grpo_keys.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/files.h"
#include "checkpoints/hf_folder.h"
#include "rollout/batch_invariant.h"

namespace temper::recipes {

using losses::AdvantageScale;
using losses::KlEstimator;

namespace {

// Whether the estimate's gradient, as a part of the loss, is that of a divergence.
void check_kl_in_loss(const GrpoKeys& c) {
  const losses::PolicyPreset preset = c.preset();
  const bool may_be_in_rewards = preset.source == losses::AdvantageSource::kGae;
  if (preset.kl_in_rewards && c.kl.unbiased)
    fail("[grpo.kl.unbiased] is true, but the KL divergence lowers rewards; {}",
         may_be_in_rewards ? "set grpo.kl.in: loss, or leave it out" : "leave it out");
  if (preset.policy.beta == 0) return;
  if (c.kl.unbiased && preset.policy.kl == KlEstimator::kK2)
    fail(
        "[grpo.kl.unbiased] is true, but k2 has the gradient of the divergence only without the ratio; set "
        "grpo.kl.estimator: k1 or k3, or leave it out");
  if (!c.kl.unbiased && preset.policy.kl == KlEstimator::kK1)
    fail(
        "[grpo.kl.estimator] k1 as a part of the loss has a gradient of 0 in the mean over what the policy "
        "samples, and holds it nowhere; set k2 or k3, or grpo.kl.unbiased: true{}",
        may_be_in_rewards ? ", or grpo.kl.in: rewards" : "");
}

// Refuses a key below `grpo` that is set but never read.
void refuse(bool set, bool read, std::string_view key, std::string_view why) {
  if (set && !read) fail("[grpo.{}] is set, but {}; leave it out", key, why);
}

void refuse_unread_by_loss(const GrpoKeys& c) {
  const losses::PolicyPreset preset = losses::policy_preset(c.loss);
  const bool cispo = preset.policy.kind == losses::PolicyKind::kCispo;
  refuse(c.policy.ratio_max.has_value(), cispo, "policy.ratio_max", "only loss cispo reads it");
  refuse(c.policy.clip_low.has_value(), !cispo, "policy.clip_low", "loss cispo does not clip");
  refuse(c.policy.clip_high.has_value(), !cispo, "policy.clip_high", "loss cispo does not clip");
  refuse(c.policy.dual_clip.has_value(), !cispo, "policy.dual_clip", "loss cispo does not clip");
  refuse(c.policy.advantage_scale.has_value(), preset.source == losses::AdvantageSource::kAnswers,
         "policy.advantage_scale", "this loss normalizes the advantages of tokens");
  const bool learns_values = preset.source == losses::AdvantageSource::kGae;
  refuse(c.kl.estimator.has_value(), !preset.kl_in_rewards || learns_values, "kl.estimator",
         "this loss takes k1 off the rewards");
  refuse(c.kl.in.has_value(), learns_values, "kl.in", "only loss ppo reads it");
  const std::string_view unused = "grpo.kl.beta is 0 and nothing is compared with a reference";
  for (const auto& [set, key] : {std::pair{c.kl.estimator.has_value(), "kl.estimator"},
                                 {c.kl.in.has_value(), "kl.in"},
                                 {c.kl.unbiased, "kl.unbiased"},
                                 {!c.kl.reference.empty(), "kl.reference"}})
    refuse(set, c.kl_factor() > 0, key, unused);
}

// `copies`: rollouts have a copy of the weights.
void refuse_unread(const GrpoKeys& c, bool copies) {
  refuse_unread_by_loss(c);
  check_kl_in_loss(c);
  const GrpoKeys unset;
  if (std::find(c.sampling.stop.begin(), c.sampling.stop.end(), "") != c.sampling.stop.end())
    fail(
        "[grpo.sampling.stop] has an empty text, which would end every answer at its first token; leave it "
        "out");
  refuse(c.filter.max_rounds != unset.filter.max_rounds, c.filter.dynamic_sampling, "filter.max_rounds",
         "grpo.filter.dynamic_sampling is false");
  refuse(c.engine.check_sync, copies, "engine.check_sync",
         "rollouts use the weights that are trained: grpo.engine.parallel is not set");
  const CorrectionKeys& correction = c.correction;
  const bool corrects = correction.type != losses::Correction::kNone;
  const std::string_view none = "grpo.correction.type is none";
  refuse(correction.cap != unset.correction.cap, corrects, "correction.cap", none);
  const bool truncated = correction.rollout_log_probs == CorrectionKeys::LogProbs::kTruncated;
  refuse(truncated, corrects, "correction.rollout_log_probs", none);
  refuse(truncated, c.sampling.truncates(), "correction.rollout_log_probs",
         "none of top_k, top_p and min_p leaves a token out");
  refuse(correction.low != unset.correction.low, correction.is_masked(), "correction.low",
         "the correction is not masked");
}

void check_groups(const GrpoKeys& c) {
  const bool compares = c.compares_answers();
  if (compares && c.group_size < 2)
    fail(
        "[grpo.group_size] is 1, but loss {} compares the answers to a prompt with one another: nothing "
        "would be learned; set 2 or more, or loss: reinforce_pp",
        c.loss);
  if (compares && (c.sampling.top_k == 1 || c.sampling.min_p == 1))
    fail(
        "[grpo.sampling.{}] is 1, with which all answers to a prompt are the same, but loss {} compares them "
        "with one "
        "another: nothing would be learned; leave it out",
        c.sampling.top_k == 1 ? "top_k" : "min_p", c.loss);
  if (c.filter.dynamic_sampling && c.group_size < 2)
    fail(
        "[grpo.filter.dynamic_sampling] is true, but groups of one answer have no spread; set "
        "grpo.group_size to 2 "
        "or more");
  if (c.prompts_per_rollout % c.updates_per_rollout != 0)
    fail(
        "[grpo.updates_per_rollout] is {}, which does not divide prompts_per_rollout, {}; set a divisor of "
        "it",
        c.updates_per_rollout, c.prompts_per_rollout);
  if (constexpr int64_t kMost = 1 << 20; c.prompts_per_rollout > kMost / c.group_size)
    fail(
        "[grpo.prompts_per_rollout] is {}, and each gets {} answers: more than {} of a rollout; set "
        "fewer",
        c.prompts_per_rollout, c.group_size, kMost);
  if (c.group_size >= 1 << 20) fail("[grpo.group_size] is {}, needs less than {}", c.group_size, 1 << 20);
}

// What other recipes read, and what it does not have.
void check_run_keys(const RunConfig& config, const GrpoKeys& c) {
  const RunConfig unset;
  const auto refuse = [](bool set, std::string_view key, std::string_view instead) {
    if (set) fail("[{}] is set, but recipe grpo makes its rows itself; {}", key, instead);
  };
  refuse(config.train.rows_per_step != unset.train.rows_per_step, "train.rows_per_step",
         "set grpo.prompts_per_rollout and grpo.group_size");
  refuse(config.train.tokens_per_step > 0, "train.tokens_per_step",
         "set grpo.prompts_per_rollout and grpo.group_size");
  refuse(config.data.loss != unset.data.loss, "data.loss", "what was sampled is learned from");
  refuse(config.data.overflow == data::Overflow::kSplit, "data.overflow", "set drop or error");
  if (config.train.z_loss > 0)
    fail("[train.z_loss] is {}, which recipe grpo does not have; leave it out", config.train.z_loss);
  for (const AdapterConfig& adapter : config.adapters)
    if (adapter.dropout.value_or(0) > 0)
      fail(
          "[adapters.{}.dropout] is {}, with which log-probabilities of training are never those of "
          "rollouts; set it to 0",
          adapter.name, *adapter.dropout);
  if (c.sampling.max_new_tokens >= config.data.max_length)
    fail(
        "[grpo.sampling.max_new_tokens] is {}, but data.max_length, {}, has room for prompt and answer "
        "together; "
        "raise it",
        c.sampling.max_new_tokens, config.data.max_length);
  if (c.engine.batch_invariant.value_or(false) &&
      rollout::batch_invariant_fields(config.device, config.model.dtype).empty())
    fail(
        "[grpo.engine.batch_invariant] is true, but such kernels compute float32 on the CPU and bfloat16 on "
        "GPUs, "
        "and "
        "this run {} on {}; leave it out",
        to_string(config.model.dtype), config.device);
  const bool quantizes = config.quantize.to_options().any();
  if (c.engine.parallel.any() && (config.model.base_dtype || quantizes))
    fail(
        "[grpo.engine.parallel] is set, which copies weights as they are, but {}; leave one of them out",
        quantizes ? "quantize rounds what passes read of them" : "model.base_dtype keeps them in fewer bits");
}

}  // namespace

void describe(config::Schema& s, GrpoKeys& c) {
  s.field("loss", c.loss, "The policy loss (docs/policy_losses.md).")
      .one_of({"grpo", "dr_grpo", "dapo", "gspo", "cispo", "reinforce_pp", "reinforce_pp_baseline", "rloo",
               "ppo"})
      .answer("bnpo", "write dapo, whose loss is the mean over tokens");
  s.field("group_size", c.group_size,
          "The number of answers to each prompt, which are compared with one another.")
      .at_least(1);
  s.field("prompts_per_rollout", c.prompts_per_rollout,
          "The number of prompts in one rollout, which the same weights answer.")
      .at_least(1);
  s.field("updates_per_rollout", c.updates_per_rollout,
          "The number of updates that share the answers of a rollout; it divides prompts_per_rollout.")
      .at_least(1);
  s.field("epochs", c.epochs, "The number of passes over the answers of a rollout.").at_least(1);
  s.list("rewards", c.rewards, "What an answer is worth: the weighted sum of these (docs/rewards.md).");
  s.group("sampling", c.sampling, "How answers are sampled.").formerly_flat();
  s.group("filter", c.filter, "Which prompts and answers updates learn from.").formerly_flat();
  s.group("policy", c.policy, "What changes the policy loss that grpo.loss names.").formerly_flat();
  s.group("kl", c.kl, "The KL divergence from a reference model.").formerly_flat();
  s.group("correction", c.correction,
          "What is done where rollouts and training compute different probabilities.")
      .formerly_flat();
  s.group("engine", c.engine,
          "How rollouts and the rows of updates are computed, which changes the last bits of results at "
          "most: memory, the number of answers at once, kernels.")
      .formerly_flat();
  s.group("critic", c.critic, "The critic of loss ppo: a second model, which learns what answers are worth.");
}

bool GrpoKeys::compares_answers() const {
  const losses::PolicyPreset preset = this->preset();
  return preset.source == losses::AdvantageSource::kAnswers &&
         (preset.advantages.baseline == losses::Baseline::kGroupMean ||
          preset.advantages.baseline == losses::Baseline::kLeaveOneOut ||
          preset.advantages.scale == AdvantageScale::kGroup);
}

losses::PolicyPreset GrpoKeys::preset() const {
  losses::PolicyPreset preset = losses::policy_preset(loss);
  losses::Policy& p = preset.policy;
  if (kl.in) preset.kl_in_rewards = *kl.in == KlKeys::In::kRewards;
  p.beta = preset.kl_in_rewards ? 0 : kl_factor();
  p.kl = kl.estimator.value_or(p.kl);
  p.unbiased_kl = kl.unbiased;
  p.clip_low = policy.clip_low.value_or(p.clip_low);
  p.clip_high = policy.clip_high.value_or(p.clip_high);
  p.dual_clip = policy.dual_clip.value_or(p.dual_clip);
  p.ratio_max = policy.ratio_max.value_or(p.ratio_max);
  p.mean = policy.mean.value_or(p.mean);
  p.correction = correction.type;
  p.correction_cap = correction.cap;
  p.correction_low = correction.low;
  preset.advantages.scale = policy.advantage_scale.value_or(preset.advantages.scale);
  return preset;
}

std::optional<RolloutDegrees> degrees_of(const GrpoKeys& keys) {
  const RolloutParallel& given = keys.engine.parallel;
  if (!given.any()) return std::nullopt;
  return RolloutDegrees{static_cast<int>(given.tensor.value_or(1)),
                        static_cast<int>(given.expert.value_or(1))};
}

losses::KlInRewards GrpoKeys::kl_in_rewards() const {
  const bool in_rewards = preset().kl_in_rewards;
  return {in_rewards ? kl_factor() : 0, kl.estimator.value_or(losses::KlEstimator::kK1)};
}

std::optional<std::string> reference_model(const RunConfig& config) {
  const GrpoKeys& keys = grpo_keys(config);
  if (keys.kl_factor() == 0) return std::nullopt;
  if (!keys.kl.reference.empty()) return keys.kl.reference;
  // Without its adapter a model is its own reference.
  return config.adapters.empty() ? std::optional(config.model.path) : std::nullopt;
}

void check_grpo(const RunConfig& config) {
  const GrpoKeys& c = grpo_keys(config);
  refuse_unread(c, c.engine.parallel.any() || config.parallel.pipeline > 1);
  check_groups(c);
  losses::check(c.preset().policy);
  if (c.rewards.empty())
    fail("[grpo.rewards] is missing; name at least one, for example {{type: exact_match}} (docs/rewards.md)");
  rewards::check(c.rewards, "grpo.rewards");
  check_run_keys(config, c);
  check_critic(config, c);
  if (const std::string& folder = c.kl.reference; !folder.empty() && !is_directory(folder))
    fail("[grpo.kl.reference] '{}' {}", folder, checkpoints::no_model_folder(folder));
}

}  // namespace temper::recipes
