#include <gtest/gtest.h>

#include "config/load.h"
#include "config/suggest.h"
#include "recipes/keys/run_config.h"
#include "tests/support/errors.h"

namespace temper::recipes {
namespace {

std::string load_error(const std::string& yaml) {
  RunConfig run;
  config::Schema schema = config::schema_of(run);
  return error_of([&] { config::load_text(schema, yaml, "run.yaml"); });
}

TEST(ForeignNames, AreNoKeysOfOursAndNameSome) {
  RunConfig run;
  const config::Schema schema = config::schema_of(run);
  std::vector<std::string> paths = config::all_paths(schema);
  std::erase_if(paths, [](const std::string& path) { return path.find("].columns.") != std::string::npos; });
  for (const auto& [name, meant] : schema.answers()) {
    for (const std::string& key : meant)
      EXPECT_TRUE(key.find(' ') != std::string::npos || std::ranges::count(paths, key) > 0)
          << name << ": " << key;
    for (const std::string& path : paths)
      EXPECT_FALSE(path == name || path.ends_with("." + name)) << name << " is " << path;
  }
}

TEST(ForeignNames, AreAnswered) {
  const auto answers = [](const std::string& yaml, const std::string& answer) {
    EXPECT_NE(load_error("model: {path: m}\n" + yaml).find(answer), std::string::npos)
        << yaml << ": " << load_error("model: {path: m}\n" + yaml);
  };
  answers("learning_rate: 1e-5", "unknown key 'learning_rate'; Temper calls it 'train.optimizer.lr'");
  answers("lr: 1e-5", "did you mean 'adapters[].lr' or 'train.optimizer.lr' or 'grpo.critic.lr'?");
  answers("train: {learning_rate: 1e-5}", "Temper calls it 'train.optimizer.lr'");
  answers("bf16: true", "use 'model.dtype: bfloat16'");
  answers("train: {per_device_train_batch_size: 4}", "use 'train.rows_per_step' for the rows of one update");
  answers("gradient_accumulation_steps: 4", "'train.micro_batch_tokens' bounds what is computed at once");
  answers("num_train_epochs: 3", "Temper calls it 'train.epochs'");
  answers("seed: 3", "did you mean 'train.seed'?");
  answers("threads: 3", "did you mean 'data.threads' or 'train.threads'?");
  answers("adapters: [{r: 8}]", "unknown key 'adapters[0].r'; Temper calls it 'adapters[0].rank'");
  answers("adapters: [{learning_rate: 8}]", "Temper calls it 'adapters[0].lr'");
  answers("lora_r: 8", "Temper calls it 'adapters[].rank'");
  answers("recipe: dpo", "found 'dpo'; write recipe: preference; its preference.loss is dpo");
  answers("recipe: lora", "found 'lora'; write recipe: sft, and adapters: [{rank: 16}]");
  answers("deepspeed: ds_z3.json", "'--ranks N' trains on N GPUs");
  answers("fsdp: full_shard",
          "'parallel.shard_level: 3' for weights in parts, too (ZeRO 3, FSDP): docs/ranks.md");
  answers("tensor_parallel_size: 2", "use 'parallel.tensor', with '--ranks N'");
  answers("push_to_hub: true", "nothing is uploaded");
  answers("early_stopping_patience: 3", "kept as 'best' in the run's folder");
  answers("neftune_noise_alpha: 5", "(NEFTune) is not supported");
  answers("template: qwen", "'data.chat_template' chooses another one");
  answers("use_liger_kernel: true", "the fastest kernels are chosen by themselves");
  answers("target_modules: [q_proj]",
          "did you mean 'adapters[].target_modules' or 'grpo.critic.target_modules'?");
  answers("rank: 8", "did you mean 'adapters[].rank' or 'grpo.critic.rank'?");
  answers("do_train: true", "'temper train' trains");
  answers("nnodes: 2", "'mpirun' or 'srun' starts the ranks on several machines");
  answers("data: {packing: true}", "found 'true'; write best_fit");
}

// Names that stand for one key or another by recipe.
TEST(ForeignNames, MayStandForKeysOfSeveralRecipes) {
  const auto calls = [](const std::string& name, const std::string& keys) {
    EXPECT_EQ(load_error("model: {path: m}\nrecipe: grpo\n" + name + ": 1\n"),
              fmt::format("[run.yaml:3] unknown key '{}'; Temper calls it {}", name, keys));
  };
  calls("loss_type", "'preference.loss' or 'grpo.loss'");
  calls("epsilon", "'train.optimizer.eps' or 'grpo.policy.clip_low' or 'grpo.policy.clip_high'");
  calls("train_batch_size", "'train.rows_per_step' or 'grpo.prompts_per_rollout'");
  calls("clip_ratio", "'grpo.policy.clip_low' or 'grpo.policy.clip_high'");
  EXPECT_EQ(
      load_error("model: {path: m}\npreference: {good_weight: 2}\n"),
      "[run.yaml:2] unknown key 'preference.good_weight'; its name is 'preference.desirable_weight' now");
}

// All of them at once; what was a value may be a group now.
TEST(ForeignNames, OfOlderVersionsAreRefusedWithTheirNamesNow) {
  const auto error = [](const std::string& keys) {
    return load_error("model: {path: m}\nrecipe: grpo\ngrpo:\n" + keys);
  };
  EXPECT_EQ(error("  temperature: 1\n"),
            "[run.yaml:4] unknown key 'grpo.temperature'; its name is 'grpo.sampling.temperature' now");
  EXPECT_EQ(error("  kl: k3\n"),
            "[run.yaml:4] 'grpo.kl' is a group of keys now; its former value is 'grpo.kl.estimator'");
  EXPECT_EQ(error("  loss: dapo\n  most_rounds: 3\n  correction: token\n  rollout_parallel: {tensor: 2}\n"),
            "[run.yaml:5] keys have other names now: 'grpo.most_rounds' is 'grpo.filter.max_rounds', "
            "'grpo.correction' is 'grpo.correction.type', 'grpo.rollout_parallel' is 'grpo.engine.parallel'");
  for (const auto& [flag, answer] :
       {std::pair{"grpo.top_p", "unknown key 'grpo.top_p'; its name is 'grpo.sampling.top_p' now"},
        {"grpo.kl", "'grpo.kl' is a group of keys now; its former value is 'grpo.kl.estimator'"},
        {"grpo.rollout_parallel.tensor",
         "unknown key 'grpo.rollout_parallel.tensor'; its name is 'grpo.engine.parallel.tensor' now"}}) {
    RunConfig run;
    config::Schema schema = config::schema_of(run);
    EXPECT_EQ(error_of([&] {
                config::load_text(schema, "model: {path: m}\n", "run.yaml", {fmt::format("--{}", flag), "1"});
              }),
              fmt::format("[command line] {}", answer));
  }
}

// Of the trainers that most people come from.
TEST(ForeignNames, HaveAnAnswerEach) {
  for (const char* name : {"ppo_mini_batch_size",
                           "clip_ratio",
                           "max_prompt_length",
                           "total_epochs",
                           "test_freq",
                           "save_freq",
                           "n_gpus_per_node",
                           "adv_estimator",
                           "kl_loss_type",
                           "loss_agg_mode",
                           "entropy_coeff",
                           "custom_reward_function",
                           "enable_gradient_checkpointing",
                           "use_vllm",
                           "scale_rewards",
                           "mask_truncated_completions",
                           "dataset_text_field",
                           "field_messages",
                           "group_by_length",
                           "pad_to_sequence_len",
                           "max_samples",
                           "dataset_dir",
                           "use_dora",
                           "loraplus_lr_ratio",
                           "trust_remote_code",
                           "special_tokens",
                           "saves_per_epoch",
                           "evals_per_epoch",
                           "adapter_name_or_path",
                           "lora_model_dir",
                           "eval_on_start"}) {
    const std::string error = load_error(fmt::format("model: {{path: m}}\n{}: 1\n", name));
    EXPECT_EQ(error.find("did you mean"), std::string::npos) << error;
    EXPECT_EQ(error.find("the keys at the top are"), std::string::npos) << error;
  }
}

}  // namespace
}  // namespace temper::recipes
