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
    if (meant.find(' ') == std::string::npos) {
      EXPECT_NE(std::find(paths.begin(), paths.end(), meant), paths.end()) << name << ": " << meant;
    }
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
  answers("lr: 1e-5", "did you mean 'train.optimizer.lr' or 'grpo.critic.lr'?");
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
  answers("data: {packing: true}", "found 'true'; write best_fit");
}

}  // namespace
}  // namespace temper::recipes
