// The files under examples that a user would edit, at toy size.
#include <cmath>

#include "tests/cli/cli_fixture.h"

namespace temper {
namespace {

class Examples : public Cli {
 protected:
  // The example with the fixture's model and data, and only a few updates.
  static Outcome run_example(const std::string& name, const std::string& out,
                             const std::string& file = "run") {
    std::string text = read_file(TEMPER_SOURCE_DIR "/examples/" + name + "/" + file + ".yaml");
    const auto replace = [&](const std::string& from, const std::string& to) {
      for (size_t at; (at = text.find(from)) != std::string::npos;) text.replace(at, from.size(), to);
    };
    replace("build/demo/narrow", folder() + "/model");
    replace("build/demo", folder());
    for (const char* model : {"runs/addition/model", "runs/both/model", "runs/narrow/model"})
      replace(model, folder() + "/model");
    replace("exact_match: 100", "exact_match: 2");
    replace("exact_match: 500", "exact_match: 2");
    replace(" examples/", " " TEMPER_SOURCE_DIR "/examples/");
    const std::string path = folder() + "/example_" + name + ".yaml";
    write_file(path, text);
    return run("train " + path + " --output " + out + " --train.steps 2 --data.max_length 64");
  }
};

TEST_F(Examples, Lora) {
  const std::string out = folder() + "/example_lora";
  const Outcome outcome = run_example("lora", out);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(losses(out + "/adapters/minus").size(), 2u);
  EXPECT_TRUE(exists(out + "/adapters/minus/adapter/adapter_config.json"));
}

TEST_F(Examples, Rewards) {
  // Held-out prompts are answered whole: fewer of them here.
  for (const char* rows : {"/says_eval.jsonl", "/sums_eval.jsonl"}) {
    const std::string text = read_file(folder() + rows);
    write_file(folder() + rows, text.substr(0, text.find('\n', 500) + 1));
  }
  for (const char* file : {"run", "lora", "maths", "ppo"}) {
    const std::string out = folder() + "/example_grpo_" + file;
    const Outcome outcome = run_example("grpo", out, file);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(losses(std::string(file) == "lora" ? out + "/adapters/says" : out).size(), 2u);
  }
}

TEST_F(Examples, SeveralAdapters) {
  const std::string out = folder() + "/example_adapters";
  // What an adapter says itself is not the run's.
  const Outcome outcome = run_example("adapters", out);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(losses(out + "/adapters/minus").size(), 2u);
  EXPECT_EQ(losses(out + "/adapters/larger").size(), 200u);
}

// The example's own model: the fixture's tokenizer, and experts.
TEST_F(Examples, Mixture) {
  const std::string out = folder() + "/example_moe", model = folder() + "/moe";
  Json config = Json::parse_file(folder() + "/model/config.json");
  for (const auto& [key, value] :
       std::initializer_list<std::pair<const char*, Json>>{{"model_type", "qwen3_moe"},
                                                           {"num_experts", 4},
                                                           {"num_experts_per_tok", 2},
                                                           {"moe_intermediate_size", 16}})
    config.set(key, value);
  make_directories(folder() + "/moe_config");
  write_file(folder() + "/moe_config/config.json", config.dump());
  for (const char* file : {"tokenizer.json", "tokenizer_config.json"})
    write_file(folder() + "/moe_config/" + file, read_file(folder() + "/model/" + file));
  ASSERT_EQ(run("init " + folder() + "/moe_config " + model).code, 0);
  const Outcome outcome = run_example("moe", out);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json line = metrics(out).at(0);
  for (const char* key : {"expert_load", "router_entropy", "idle_experts"})
    EXPECT_EQ(line.at(key).as_array().size(), line.at("router_entropy").as_array().size()) << key;
  EXPECT_GT(line.at("balance_loss").as_double(), 1);
}

TEST_F(Examples, Quantization) {
  for (const char* file : {"narrow", "run"}) {
    const std::string out = folder() + "/example_qat_" + file;
    const Outcome outcome = run_example("qat", out, file);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(losses(out).size(), 2u);
  }
  const std::string out = folder() + "/example_qat_run", exported = folder() + "/example_qat_nvfp4";
  const Outcome outcome = run("export " + out + " " + exported);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(exists(exported + "/hf_quant_config.json"));
}

TEST_F(Examples, BeforePreference) {
  const std::string out = folder() + "/example_both";
  const Outcome outcome = run_example("preference", out, "both");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(losses(out).size(), 2u);
  EXPECT_TRUE(exists(out + "/model/config.json"));
}

TEST_F(Examples, Preference) {
  const std::string out = folder() + "/example_preference";
  const Outcome outcome = run_example("preference", out);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const std::vector<Json> lines = metrics(out + "/adapters/polite");
  EXPECT_NEAR(lines.at(0).at("loss").as_double(), std::log(2.0), 1e-6);
  EXPECT_TRUE(lines.at(1).find("reward_accuracy") != nullptr);
  EXPECT_TRUE(exists(out + "/adapters/polite/adapter/adapter_config.json"));
}

}  // namespace
}  // namespace temper
