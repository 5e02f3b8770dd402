#include "recipes/grpo/key_groups.h"

namespace temper::recipes {

using losses::AdvantageScale;
using losses::Correction;
using losses::KlEstimator;
using losses::PolicyMean;

bool CorrectionKeys::is_masked() const {
  return type == Correction::kTokenMasked || type == Correction::kSequenceMasked;
}

void describe(config::Schema& s, SamplingKeys& c) {
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
  s.field("max_new_tokens", c.max_new_tokens, "The largest number of tokens in an answer.").at_least(1);
  s.field("stop", c.stop, "Texts that end an answer, besides the model's stop tokens.");
}

void describe(config::Schema& s, FilterKeys& c) {
  using OnRewardError = FilterKeys::OnRewardError;
  using OnTruncated = FilterKeys::OnTruncated;
  s.field("dynamic_sampling", c.dynamic_sampling,
          "Ask more prompts until prompts_per_rollout of them have answers whose rewards differ.");
  s.field("max_rounds", c.max_rounds,
          "The largest number of rounds of prompts in a rollout; dynamic_sampling reads it.")
      .at_least(1)
      .formerly("most_rounds")
      .formerly("max_rounds");
  s.choice("on_reward_error", c.on_reward_error,
           {{"stop", OnRewardError::kStop}, {"drop", OnRewardError::kDrop}},
           "What to do with an answer that a reward cannot judge: stop the run, or learn without it.");
  s.choice("on_truncated", c.on_truncated, {{"learn", OnTruncated::kLearn}, {"drop", OnTruncated::kDrop}},
           "Whether updates learn from answers that were cut off at sampling.max_new_tokens.");
}

void describe(config::Schema& s, PolicyKeys& c) {
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
  s.field("entropy", c.entropy, "The weight of the entropy bonus, which rewards answers with more entropy.");
}

void describe(config::Schema& s, KlKeys& c) {
  s.field("beta", c.beta, "The weight of the KL divergence from the reference. Omitted: as the loss has it.")
      .at_least(0);
  s.choice("estimator", c.estimator,
           {{"k1", KlEstimator::kK1}, {"k2", KlEstimator::kK2}, {"k3", KlEstimator::kK3}},
           "How the KL divergence is estimated. Omitted: as the loss has it.")
      .formerly("kl");
  s.choice("in", c.in, {{"rewards", KlKeys::In::kRewards}, {"loss", KlKeys::In::kLoss}},
           "Whether the KL divergence is a penalty in the rewards of tokens, or a term of the loss; loss ppo "
           "reads it. Omitted: rewards.")
      .formerly("kl_in");
  s.field("unbiased", c.unbiased,
          "Multiply the KL divergence in the loss by the token's ratio, with the ratio's gradient, which "
          "gives an unbiased gradient of the divergence, also for answers of an older policy.")
      .formerly("unbiased_kl");
  s.field("reference", c.reference,
          "The folder of a model to stay close to. Omitted: the model as it was (without its adapter).")
      .path();
}

void describe(config::Schema& s, CorrectionKeys& c) {
  s.choice("type", c.type,
           {{"none", Correction::kNone},
            {"token", Correction::kTokenTruncated},
            {"token_masked", Correction::kTokenMasked},
            {"sequence", Correction::kSequenceTruncated},
            {"sequence_masked", Correction::kSequenceMasked}},
           "Importance weights of tokens or whole answers: ratios of the probabilities that training and "
           "rollouts compute, truncated at correction.cap, or (masked) 0 outside of correction.low and "
           "correction.cap.")
      .formerly("correction");
  s.field("cap", c.cap, "The largest weight of the correction.").above(0).formerly("correction_cap");
  s.field("low", c.low, "The smallest weight that a masked correction lets through.")
      .at_least(0)
      .formerly("correction_low");
  s.choice("rollout_log_probs", c.rollout_log_probs,
           {{"full", CorrectionKeys::LogProbs::kFull}, {"truncated", CorrectionKeys::LogProbs::kTruncated}},
           "What the correction takes as the probability of a token in the rollout: among the whole "
           "vocabulary, or among the tokens that top_k, top_p and min_p kept.");
  s.field(
      "routing_replay", c.routing_replay,
      "In mixtures of experts, use the experts that the rollout chose in updates, too, instead of asking the "
      "routers again.");
  s.field("max_log_prob_gap", c.max_log_prob_gap,
          "Stop when log-probabilities of rollouts and training are further apart than this, in the mean "
          "over an update's tokens; 0: never.")
      .at_least(0);
}

void describe(config::Schema& s, RolloutParallel& c) {
  s.field("tensor", c.tensor,
          "The number of ranks that divide every layer in rollouts; 1 where it is omitted.")
      .at_least(1);
  s.field("expert", c.expert,
          "The number of ranks that divide the experts in rollouts; 1 where it is omitted.")
      .at_least(1);
}

void describe(config::Schema& s, EngineKeys& c) {
  s.field("batch", c.batch,
          "The rollout batch size: the largest number of answers that are computed at once.")
      .at_least(1)
      .changeable();
  s.field("cache_tokens", c.cache_tokens,
          "The number of tokens that the KV cache of rollouts has room for. Omitted: all that "
          "grpo.engine.batch answers can need, or as many as fit in the memory that training leaves.")
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
  s.group("parallel", c.parallel,
          "How rollouts divide the model between the ranks, where that is another way than training's: they "
          "have a copy of the weights then. Omitted: as training does.")
      .changeable()
      .formerly("rollout_parallel");
  s.field("check_sync", c.check_sync,
          "Compare every parameter after each copy of the weights to rollouts that divide them otherwise.")
      .changeable();
  s.field("share_prompts", c.share_prompts,
          "Compute the prompt of answers to it once in updates, where they fit a row together.");
}

}  // namespace temper::recipes
