#include "recipes/grpo/grpo_keys.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/files.h"
#include "checkpoints/hf_folder.h"
#include "rollout/batch_invariant.h"

namespace temper::recipes {

using losses::AdvantageScale;
using losses::Correction;
using losses::KlEstimator;
using losses::PolicyMean;

void describe(config::Schema& s, RolloutParallel& c) {
  s.field("tensor", c.tensor,
          "The number of ranks that divide every layer in rollouts; 1 where it is omitted.")
      .at_least(1);
  s.field("expert", c.expert,
          "The number of ranks that divide the experts in rollouts; 1 where it is omitted.")
      .at_least(1);
}

namespace {

void describe_rollouts(config::Schema& s, GrpoKeys& c) {
  using OnRewardError = GrpoKeys::OnRewardError;
  using OnTruncated = GrpoKeys::OnTruncated;
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
  s.field("max_new_tokens", c.max_new_tokens, "The largest number of tokens in an answer.").at_least(1);
  s.field(
       "temperature", c.temperature,
       "What logits are divided by, in rollouts and in training. Below 1e-4 all answers to a prompt would be "
       "the same, or their probabilities NaN or infinite.")
      .at_least(1e-4);
  s.field("top_k", c.top_k, "Sample from the k most likely tokens; 0: from all.").at_least(0);
  s.field("top_p", c.top_p, "Sample from the most likely tokens that have this probability together.")
      .above(0)
      .at_most(1);
  s.field("min_p", c.min_p,
          "Sample from tokens at least this times as likely as the most likely one; 0: from all.")
      .at_least(0)
      .at_most(1);
  s.field("stop", c.stop, "Texts that end an answer, besides the model's stop tokens.");
  s.list("rewards", c.rewards, "What an answer is worth: the weighted sum of these (docs/rewards.md).");
  s.choice("on_reward_error", c.on_reward_error,
           {{"stop", OnRewardError::kStop}, {"drop", OnRewardError::kDrop}},
           "What to do with an answer that a reward cannot judge: stop the run, or learn without it.");
  s.choice("on_truncated", c.on_truncated, {{"learn", OnTruncated::kLearn}, {"drop", OnTruncated::kDrop}},
           "Whether updates learn from answers that were cut off at max_new_tokens.");
  s.field("dynamic_sampling", c.dynamic_sampling,
          "Ask more prompts until prompts_per_rollout of them have answers whose rewards differ.");
  s.field("max_rounds", c.max_rounds,
          "The largest number of rounds of prompts in a rollout; dynamic_sampling reads it.")
      .at_least(1)
      .formerly("most_rounds");
}

// What decides no answer, but for the last bits of numbers.
void describe_engine(config::Schema& s, GrpoKeys& c) {
  s.field("batch", c.batch,
          "The rollout batch size: the largest number of answers that are computed at once.")
      .at_least(1)
      .changeable();
  s.field("cache_tokens", c.cache_tokens,
          "The number of tokens that the KV cache of rollouts has room for. Omitted: all that grpo.batch "
          "answers can need, or as many as fit beside training's memory.")
      .at_least(16)
      .changeable();
  s.choice(
       "sleep", c.sleep,
       {{"optimizer", training::UpdateState::kOptimizer},
        {"gradients", training::UpdateState::kGradients},
        {"communication", training::UpdateState::kCommunication}},
       "What frees its memory during rollouts: gradients, which are dropped; the optimizer's state, which is "
       "offloaded to the CPU's memory and copied back each time; and the networks of GPUs (communication) "
       "that only updates need, which are connected again each time. It is of use on GPUs.")
      .changeable();
  s.field("batch_invariant", c.batch_invariant,
          "Kernels by which log-probabilities of rollouts and training are equal to the last bit: float32 on "
          "the CPU, bfloat16 on GPUs. Omitted: on the CPU alone.");
  s.group("rollout_parallel", c.rollout_parallel,
          "How rollouts divide the model between the ranks, where that is another way than training's: they "
          "have a copy of the weights then. Omitted: as training does.")
      .changeable();
  s.field("check_sync", c.check_sync,
          "Compare every parameter after each copy of the weights to rollouts that divide them otherwise.")
      .changeable();
}

void describe_loss(config::Schema& s, GrpoKeys& c) {
  s.field("beta", c.beta, "The weight of the KL divergence from the reference. Omitted: as the loss has it.")
      .at_least(0);
  s.choice("kl", c.kl, {{"k1", KlEstimator::kK1}, {"k2", KlEstimator::kK2}, {"k3", KlEstimator::kK3}},
           "How the KL divergence is estimated. Omitted: as the loss has it.");
  s.choice("kl_in", c.kl_in, {{"rewards", GrpoKeys::KlIn::kRewards}, {"loss", GrpoKeys::KlIn::kLoss}},
           "Whether the KL divergence is a penalty in the rewards of tokens, or a term of the loss; loss ppo "
           "reads it. Omitted: rewards.");
  s.field("unbiased_kl", c.unbiased_kl,
          "Multiply the KL divergence in the loss by the token's ratio, with the ratio's gradient, which "
          "gives an "
          "unbiased gradient of the divergence, also for answers of an older policy.");
  s.field("reference", c.reference,
          "The folder of a model to stay close to. Omitted: the model as it was (without its adapter).")
      .path();
  s.field("clip_low", c.clip_low, "How far a ratio may fall below 1. Omitted: as the loss has it.").above(0);
  s.field("clip_high", c.clip_high, "How far a ratio may rise above 1. Omitted: as the loss has it.")
      .above(0);
  s.field("dual_clip", c.dual_clip,
          "Dual clipping: the bound of the loss of tokens with a negative advantage, in multiples of it.")
      .above(1);
  s.field("ratio_max", c.ratio_max, "The largest ratio that cispo weighs with.").above(0);
  s.choice("mean", c.mean,
           {{"answers", PolicyMean::kAnswers},
            {"tokens", PolicyMean::kTokens},
            {"constant", PolicyMean::kConstant}},
           "What losses of tokens are divided by. Omitted: as the loss has it.");
  s.choice(
      "advantage_scale", c.advantage_scale,
      {{"group", AdvantageScale::kGroup}, {"batch", AdvantageScale::kBatch}, {"none", AdvantageScale::kNone}},
      "The deviation that advantages are divided by. Omitted: as the loss has it.");
  s.choice("correction", c.correction,
           {{"none", Correction::kNone},
            {"token", Correction::kTokenTruncated},
            {"token_masked", Correction::kTokenMasked},
            {"sequence", Correction::kSequenceTruncated},
            {"sequence_masked", Correction::kSequenceMasked}},
           "Weights for what rollouts compute otherwise than training: ratios of their probabilities, "
           "truncated at correction_cap, or (masked) 0 outside of correction_low and correction_cap.");
  s.choice("rollout_log_probs", c.rollout_log_probs,
           {{"full", GrpoKeys::LogProbs::kFull}, {"truncated", GrpoKeys::LogProbs::kTruncated}},
           "What the correction takes as the probability of a token in the rollout: among the whole "
           "vocabulary, or among the tokens that top_k, top_p and min_p kept.");
  s.field("correction_cap", c.correction_cap, "The largest weight of the correction.").above(0);
  s.field("correction_low", c.correction_low, "The smallest weight that a masked correction lets through.")
      .at_least(0);
  s.field("entropy", c.entropy, "The weight of the entropy bonus, which rewards answers with more entropy.");
  s.field("max_log_prob_gap", c.max_log_prob_gap,
          "Stop when log-probabilities of rollouts and training are further apart than this, in the mean "
          "over an update's tokens; 0: never.")
      .at_least(0);
  s.field(
      "routing_replay", c.routing_replay,
      "In mixtures of experts, use the experts that the rollout chose in updates, too, instead of asking the "
      "routers again.");
  s.field("share_prompts", c.share_prompts,
          "Compute the prompt of answers to it once, as far as they fit a row.");
}

// Whether the estimate's gradient, as a part of the loss, is that of a divergence.
void check_kl_in_loss(const GrpoKeys& c) {
  const losses::PolicyPreset preset = c.preset();
  const bool may_be_in_rewards = preset.source == losses::AdvantageSource::kGae;
  if (preset.kl_in_rewards && c.unbiased_kl)
    fail("[grpo.unbiased_kl] is true, but the KL divergence lowers rewards; {}",
         may_be_in_rewards ? "set kl_in: loss, or leave it out" : "leave it out");
  if (preset.policy.beta == 0) return;
  if (c.unbiased_kl && preset.policy.kl == KlEstimator::kK2)
    fail(
        "[grpo.unbiased_kl] is true, but k2 has the gradient of the divergence only without the ratio; set "
        "kl: "
        "k1 or k3, or leave it out");
  if (!c.unbiased_kl && preset.policy.kl == KlEstimator::kK1)
    fail(
        "[grpo.kl] k1 as a part of the loss has a gradient of 0 in the mean over what the policy samples, "
        "and holds it nowhere; set k2 or k3, or unbiased_kl: true{}",
        may_be_in_rewards ? ", or kl_in: rewards" : "");
}

void refuse_unread(const GrpoKeys& c) {
  const losses::PolicyPreset preset = losses::policy_preset(c.loss);
  const auto refuse = [&](bool set, bool read, std::string_view key, std::string_view why) {
    if (set && !read) fail("[grpo.{}] is set, but {}; leave it out", key, why);
  };
  const bool cispo = preset.policy.kind == losses::PolicyKind::kCispo;
  refuse(c.ratio_max.has_value(), cispo, "ratio_max", "only loss cispo reads it");
  refuse(c.clip_low.has_value(), !cispo, "clip_low", "loss cispo does not clip");
  refuse(c.clip_high.has_value(), !cispo, "clip_high", "loss cispo does not clip");
  refuse(c.dual_clip.has_value(), !cispo, "dual_clip", "loss cispo does not clip");
  refuse(c.advantage_scale.has_value(), preset.source == losses::AdvantageSource::kAnswers, "advantage_scale",
         "this loss normalizes the advantages of tokens");
  const bool learns_values = preset.source == losses::AdvantageSource::kGae;
  refuse(c.kl.has_value(), !preset.kl_in_rewards || learns_values, "kl",
         "this loss takes k1 off the rewards");
  refuse(c.kl_in.has_value(), learns_values, "kl_in", "only loss ppo reads it");
  const std::string_view unused = "beta is 0 and nothing is compared with a reference";
  for (const auto& [set, key] : {std::pair{c.kl.has_value(), "kl"},
                                 {c.kl_in.has_value(), "kl_in"},
                                 {c.unbiased_kl, "unbiased_kl"},
                                 {!c.reference.empty(), "reference"}})
    refuse(set, c.kl_factor() > 0, key, unused);
  check_kl_in_loss(c);
  if (std::find(c.stop.begin(), c.stop.end(), "") != c.stop.end())
    fail("[grpo.stop] has an empty text, which would end every answer at its first token; leave it out");
  refuse(c.max_rounds != GrpoKeys().max_rounds, c.dynamic_sampling, "max_rounds",
         "dynamic_sampling is false");
  refuse(c.check_sync, c.rollout_parallel.any(), "check_sync",
         "rollouts use the weights that are trained: rollout_parallel is not set");
  const bool corrects = c.correction != Correction::kNone;
  refuse(c.correction_cap != GrpoKeys().correction_cap, corrects, "correction_cap", "correction is none");
  const bool truncated = c.rollout_log_probs == GrpoKeys::LogProbs::kTruncated;
  refuse(truncated, corrects, "rollout_log_probs", "correction is none");
  refuse(truncated, c.truncates(), "rollout_log_probs", "none of top_k, top_p and min_p leaves a token out");
  refuse(c.correction_low != GrpoKeys().correction_low,
         c.correction == Correction::kTokenMasked || c.correction == Correction::kSequenceMasked,
         "correction_low", "the correction is not masked");
}

void check_groups(const GrpoKeys& c) {
  const bool compares = c.compares_answers();
  if (compares && c.group_size < 2)
    fail(
        "[grpo.group_size] is 1, but loss {} compares the answers to a prompt with one another: nothing "
        "would be learned; set 2 or more, or loss: reinforce_pp",
        c.loss);
  if (compares && (c.top_k == 1 || c.min_p == 1))
    fail(
        "[grpo.{}] is 1, with which all answers to a prompt are the same, but loss {} compares them with one "
        "another: nothing would be learned; leave it out",
        c.top_k == 1 ? "top_k" : "min_p", c.loss);
  if (c.dynamic_sampling && c.group_size < 2)
    fail(
        "[grpo.dynamic_sampling] is true, but groups of one answer have no spread; set grpo.group_size to 2 "
        "or more");
  if (c.prompts_per_rollout % c.updates_per_rollout != 0)
    fail(
        "[grpo.updates_per_rollout] is {}, which does not divide prompts_per_rollout, {}; set a divisor of "
        "it",
        c.updates_per_rollout, c.prompts_per_rollout);
  if (constexpr int64_t kMost = 1 << 20; c.prompts_per_rollout > kMost / c.group_size)
    fail(
        "[grpo.prompts_per_rollout] is {}, of which each gets {} answers: more than {} of a rollout; set "
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
  if (c.max_new_tokens >= config.data.max_length)
    fail(
        "[grpo.max_new_tokens] is {}, but data.max_length, {}, has room for prompt and answer together; "
        "raise it",
        c.max_new_tokens, config.data.max_length);
  if (c.batch_invariant.value_or(false) &&
      rollout::batch_invariant_fields(config.device, config.model.dtype).empty())
    fail(
        "[grpo.batch_invariant] is true, but such kernels compute float32 on the CPU and bfloat16 on GPUs, "
        "and "
        "this run {} on {}; leave it out",
        to_string(config.model.dtype), config.device);
  const bool quantizes = config.quantize.to_options().any();
  if (c.rollout_parallel.any() && (config.model.base_dtype || quantizes))
    fail(
        "[grpo.rollout_parallel] is set, which copies weights as they are, but {}; leave one of them out",
        quantizes ? "quantize rounds what passes read of them" : "model.base_dtype keeps them in fewer bits");
}

}  // namespace

void describe(config::Schema& s, GrpoKeys& c) {
  s.field("loss", c.loss, "The policy loss (docs/policy_losses.md).")
      .one_of({"grpo", "dr_grpo", "dapo", "gspo", "cispo", "reinforce_pp", "reinforce_pp_baseline", "rloo",
               "ppo"})
      .answer("bnpo", "write dapo, whose loss is the mean over tokens");
  describe_rollouts(s, c);
  describe_engine(s, c);
  describe_loss(s, c);
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
  if (kl_in) preset.kl_in_rewards = *kl_in == KlIn::kRewards;
  p.beta = preset.kl_in_rewards ? 0 : kl_factor();
  p.kl = kl.value_or(p.kl);
  p.unbiased_kl = unbiased_kl;
  p.clip_low = clip_low.value_or(p.clip_low);
  p.clip_high = clip_high.value_or(p.clip_high);
  p.dual_clip = dual_clip.value_or(p.dual_clip);
  p.ratio_max = ratio_max.value_or(p.ratio_max);
  p.mean = mean.value_or(p.mean);
  p.correction = correction;
  p.correction_cap = correction_cap;
  p.correction_low = correction_low;
  preset.advantages.scale = advantage_scale.value_or(preset.advantages.scale);
  return preset;
}

std::optional<RolloutDegrees> degrees_of(const GrpoKeys& keys) {
  const RolloutParallel& given = keys.rollout_parallel;
  if (!given.any()) return std::nullopt;
  return RolloutDegrees{static_cast<int>(given.tensor.value_or(1)),
                        static_cast<int>(given.expert.value_or(1))};
}

losses::KlInRewards GrpoKeys::kl_in_rewards() const {
  const bool in_rewards = preset().kl_in_rewards;
  return {in_rewards ? kl_factor() : 0, kl.value_or(losses::KlEstimator::kK1)};
}

std::optional<std::string> reference_model(const RunConfig& config) {
  const GrpoKeys& keys = grpo_keys(config);
  if (keys.kl_factor() == 0) return std::nullopt;
  if (!keys.reference.empty()) return keys.reference;
  // Without its adapter a model is its own reference.
  return config.adapters.empty() ? std::optional(config.model.path) : std::nullopt;
}

void check_grpo(const RunConfig& config) {
  const GrpoKeys& c = grpo_keys(config);
  refuse_unread(c);
  check_groups(c);
  losses::check(c.preset().policy);
  if (c.rewards.empty())
    fail("[grpo.rewards] is missing; name at least one, for example {{type: exact_match}} (docs/rewards.md)");
  rewards::check(c.rewards, "grpo.rewards");
  check_run_keys(config, c);
  check_critic(config, c);
  if (!c.reference.empty() && !is_directory(c.reference))
    fail("[grpo.reference] '{}' {}", c.reference, checkpoints::no_model_folder(c.reference));
}

}  // namespace temper::recipes
