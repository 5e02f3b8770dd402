#include "base/error.h"
#include "recipes/grpo/grpo_batches.h"
#include "recipes/grpo/grpo_keys.h"
#include "recipes/grpo/trial.h"
#include "recipes/parts/rollout_memory.h"
#include "recipes/setup/recipe_inputs.h"
#include "rollout/batch_invariant.h"
#include "training/objectives/policy.h"

namespace temper::recipes {
namespace {

RowsWanted rows(const RunConfig&) { return {data::Goal::kAny, true}; }

std::string other_model(const RunConfig& config) { return grpo_keys(config).kl.reference; }

training::PolicyOptions options_of(const RunConfig& config) {
  const GrpoKeys& keys = grpo_keys(config);
  return {keys.preset().policy, keys.sampling.temperature,
          keys.policy.entropy,  keys.sampling.max_new_tokens,
          keys.kl_factor() > 0, keys.correction.rollout_log_probs == CorrectionKeys::LogProbs::kTruncated};
}

Recipe::Objective objective_for(const RunConfig& config, const layers::Decoder& model) {
  return std::make_shared<training::PolicyGradient>(model, options_of(config),
                                                    config.train.compute.micro_batch_tokens);
}

Recipe::Objective objective(const ObjectiveInputs& inputs) {
  return objective_for(inputs.config, inputs.setup.model->decoder);
}

Recipe::Objective rehearsed(const RunConfig& config, const layers::Decoder& model, const layers::Decoder*) {
  return objective_for(config, model);
}

// Both ways of computing a token add up alike with these, whatever is computed with it.
ops::FieldValues kernels(const RunConfig& config, bool needed) {
  const std::optional<bool> written = grpo_keys(config).engine.batch_invariant;
  // By itself where it costs next to nothing.
  if (needed ? !written.value_or(false) : written.has_value() || config.device != "cpu") return {};
  return rollout::batch_invariant_fields(config.device, config.model.dtype);
}

RolloutSettings rollouts(const RunConfig& config) {
  const GrpoKeys& keys = grpo_keys(config);
  return {engine_options(config, keys.group_size * keys.prompts_per_rollout),
          !keys.engine.cache_tokens,
          config.data.max_length,
          keys.engine.sleep,
          degrees_of(keys),
          keys.sampling.stop};
}

std::unique_ptr<BatchSource> batches(const BatchInputs& inputs) {
  return std::make_unique<GrpoBatches>(inputs);
}

double updates_per_epoch(const RunConfig& config, const DataSets& data) {
  const GrpoKeys& keys = grpo_keys(config);
  return static_cast<double>(data.train.size()) / static_cast<double>(keys.prompts_per_rollout) *
         static_cast<double>(keys.updates());
}

// The first prompts, with answers as long as they may be.
data::Batch sample(const RunConfig& config, const DataSets& data) {
  const GrpoKeys& keys = grpo_keys(config);
  Prompts prompts(data.train, config, keys.sampling.max_new_tokens);
  std::vector<SampledAnswer> samples;
  const int64_t groups = keys.prompts_per_rollout / keys.updates_per_rollout;
  for (int64_t group = 0; group < groups; ++group) {
    const Prompt prompt = prompts.next();
    for (int64_t number = 0; number < keys.group_size; ++number) {
      SampledAnswer& one = samples.emplace_back(SampledAnswer{0, group, number, prompt.row});
      const auto tokens = static_cast<size_t>(keys.sampling.max_new_tokens);
      one.passages.push_back(
          {prompt.ids, std::vector<int32_t>(tokens, prompt.ids.back()), std::vector<uint8_t>(tokens, 1)});
    }
  }
  std::vector<SampledAnswer*> all;
  for (SampledAnswer& one : samples) all.push_back(&one);
  SampleRows made = rows_of(all, config.data.max_length, config.data.packing, keys.engine.share_prompts);
  made.fill();
  return batch_of(std::move(made.rows));
}

void judge(const RunConfig& config, const training::StepResult& result) {
  const double most = grpo_keys(config).correction.max_log_prob_gap;
  if (most == 0 || !result.policy || result.policy->sums.tokens == 0) return;
  const losses::PolicySums& sums = result.policy->sums;
  const double gap = sums.log_prob_gap / static_cast<double>(sums.tokens);
  if (gap <= most) return;
  fail(
      "log-probabilities of rollouts and training have parted: {:.3g} apart in the mean, {:.3g} at most; "
      "grpo.correction.max_log_prob_gap is {}. What is learned from such answers is not what was sampled: "
      "use the same "
      "kernels for both (grpo.engine.batch_invariant), a correction, or float32",
      gap, sums.largest_gap, most);
}

}  // namespace

void register_grpo() {
  registry<Recipe>().add(
      "grpo",
      {.learns_from = "rewards of its own answers",
       .keys = OwnKeys::of<GrpoKeys>("How rewards are learned from, with recipe grpo."),
       .loss_key = "loss",
       .answers = {{"dapo", "write recipe: grpo, and grpo.loss: dapo"},
                   {"rloo", "write recipe: grpo, and grpo.loss: rloo"},
                   {"gspo", "write recipe: grpo, and grpo.loss: gspo"},
                   {"ppo", "write recipe: grpo, and grpo.loss: ppo"}},
       .foreign_names =
           {{"grpo.loss", {"loss_type", "adv_estimator"}},
            {"grpo.group_size", {"num_generations", "n_samples_per_prompt", "rollout_n"}},
            {"grpo.prompts_per_rollout", {"train_batch_size", "rollout_batch_size"}},
            {"use 'grpo.updates_per_rollout', the number of updates that share the answers of a rollout",
             {"ppo_mini_batch_size", "mini_batch_size", "num_mini_batches"}},
            {"grpo.sampling.max_new_tokens", {"max_completion_length", "max_response_length"}},
            {"grpo.kl.beta", {"kl_coef", "kl_loss_coef", "init_kl_coef"}},
            {"grpo.kl.estimator", {"kl_loss_type", "kl_estimator"}},
            {"grpo.kl.in", {"use_kl_loss", "use_kl_in_reward"}},
            {"grpo.epochs", {"num_iterations", "ppo_epochs"}},
            {"grpo.policy.mean", {"loss_agg_mode"}},
            {"grpo.policy.entropy", {"entropy_coeff", "entropy_coef"}},
            {"grpo.kl.unbiased", {"use_bias_correction_kl", "use_unbiased_kl"}},
            {"grpo.critic.path", {"value_model_path", "critic_model"}},
            {"grpo.critic.lambda", {"lam", "gae_lambda"}},
            {"grpo.critic.clip", {"cliprange_value"}},
            {"grpo.critic.warmup_updates", {"critic_warmup"}},
            {"grpo.rewards", {"reward_funcs", "reward_fn", "reward_model", "custom_reward_function"}},
            {"grpo.policy.advantage_scale", {"scale_rewards", "norm_adv_by_std_in_grpo"}},
            {"grpo.filter.on_truncated", {"mask_truncated_completions"}},
            {"grpo.policy.dual_clip", {"clip_ratio_c"}},
            {"grpo.policy.clip_low", {"epsilon", "clip_ratio", "cliprange", "epsilon_low", "clip_ratio_low"}},
            {"grpo.policy.clip_high",
             {"epsilon", "clip_ratio", "cliprange", "epsilon_high", "clip_ratio_high"}},
            {"rollouts are computed by this program itself, between updates; leave it out",
             {"use_vllm", "vllm_mode", "vllm_gpu_memory_utilization", "gpu_memory_utilization"}}},
       .check = check_grpo,
       .rows = rows,
       .second_model = reference_model,
       .other_model = other_model,
       .rollouts = rollouts,
       .critic = critic_settings,
       .objective = objective,
       .rehearsed = rehearsed,
       .kernels = kernels,
       .batches = batches,
       .updates_per_epoch = updates_per_epoch,
       .sample = sample,
       .read_rows = read_prompts,
       .try_rewards = try_rewards,
       .time_of_rollouts = time_of_rollouts,
       .judge = judge});
}

}  // namespace temper::recipes
