// Models that ranks divide between them (layers, experts, matrices) learn and answer what one rank does.
#include "base/clock.h"
#include "tests/cli/ranks_fixture.h"
#include "tests/support/errors.h"

namespace temper {
namespace {

class DividedModels : public RanksOfARun {};

// Adapters of divided layers, with dropout, and preferences by divided vocabularies.
TEST_F(DividedModels, LearnTheSame) {
  const std::string lora = "--adapters '[{name: a, rank: 4, dropout: 0.1}, {name: b, rank: 2}]' ",
                    one = train("lora_whole", lora),
                    two = train("lora_divided", lora + "--ranks 4 --parallel.tensor 2");
  for (const char* adapter : {"/adapters/a", "/adapters/b"}) expect_same_course(two + adapter, one + adapter);
  for (const char* base : {"", "--model.base_dtype float8_e4m3fn --model.dtype bfloat16 "}) {
    const std::string alone = train("lora_alone", lora + base),
                      sharded = train("lora_sharded",
                                      lora + base + "--ranks 2 --parallel.shard 2 --parallel.shard_level 3");
    for (const char* adapter : {"/adapters/a", "/adapters/b"})
      if (*base == 0)
        expect_same_course(sharded + adapter, alone + adapter);
      else
        EXPECT_NEAR(metrics(sharded + adapter).back().at("loss").as_double(),
                    metrics(alone + adapter).back().at("loss").as_double(), 1e-2);
    for (const std::string& out : {alone, sharded}) std::system(("rm -r " + out).c_str());
  }
  const std::string dpo = "--recipe preference --data.train " + folder() +
                          "/pairs_train.jsonl --data.max_length 96 --train.steps 4 ";
  expect_on_meshes("dpo", dpo, train("dpo_whole", dpo),
                   {"--ranks 2 --parallel.tensor 2", "--ranks 2 --parallel.shard 2 --parallel.shard_level 2",
                    "--ranks 2 --parallel.shard 2 --parallel.shard_level 3",
                    // The reference is a second model, which is divided, too.
                    "--ranks 2 --parallel.tensor 2 --preference.precompute false",
                    "--ranks 2 --parallel.shard 2 --parallel.shard_level 3 --preference.precompute false"});
}

// Ranks that divide a model answer together.
TEST_F(DividedModels, AnswerQuestionsTogether) {
  ASSERT_EQ(run("init " + folder() + "/qwen3-moe-tiny " + folder() + "/asked").code, 0);
  const auto answers = [&](const std::string& name, const std::string& flags) {
    const std::string out = train(name, "--eval.exact_match 5 --eval.max_new_tokens 6 --data.eval [" +
                                            folder() + "/eval.jsonl] --train.steps 4 " + flags);
    const std::string log = read_file(out + "/console.log");
    std::string found;
    for (size_t at = 0; (at = log.find("  answer: ", at)) != std::string::npos; ++at)
      found += log.substr(at, log.find('\n', at) - at) + "\n";
    return found;
  };
  const std::string dense = answers("asked_one", "");
  EXPECT_NE(dense, "");
  EXPECT_EQ(answers("asked_tensor", "--ranks 2 --parallel.tensor 2"), dense);
  EXPECT_EQ(answers("asked_matrices", "--ranks 2 --parallel.shard 2 --parallel.shard_level 3"), dense);
  const std::string model = "--model.path " + folder() + "/asked ", mixture = answers("asked_mixture", model);
  EXPECT_EQ(answers("asked_experts", model + "--ranks 4 --parallel.expert 2 --parallel.tensor 2"), mixture);
}

// All ranks find it: none waits for one that has ended.
TEST_F(DividedModels, RefuseAQuestionThatIsTooLong) {
  const std::string questions = folder() + "/long_question.jsonl";
  const auto row = [](const std::string& asked) {
    return R"({"messages": [{"role": "user", "content": ")" + asked +
           R"("}, {"role": "assistant", "content": "7"}]})" + "\n";
  };
  std::string text;
  for (int i = 0; i < 600; ++i) text += "12 ";
  write_file(questions, row("3 + 4") + row(text));
  for (const char* flags : {"", " --ranks 2 --parallel.tensor 2"}) {
    const double start = seconds_now();
    const Outcome outcome = run("train " + yaml() + " --output " + folder() + "/too_long --data.eval [" +
                                questions + "] --eval.exact_match 2" + flags);
    EXPECT_EQ(outcome.code, 2) << flags;
    expect_has(outcome.err, "[" + questions + ":2] [generate] the prompt has ");
    expect_has(outcome.err, "eval.exact_match cannot ask it");
    EXPECT_LT(seconds_now() - start, 18) << "a rank waited for the others (collectives::kFailureWaits)";
  }
}

// Norms of all heads together: ranks exchange the sums of squares; neighbours may have the same heads of
// keys.
TEST_F(DividedModels, HaveNormsOfAllHeads) {
  const std::string model = folder() + "/norms_of_all_heads";
  make_directories(model);
  write_file(model + "/config.json",
             R"({"model_type": "olmo2", "architectures": ["Olmo2ForCausalLM"], "attention_bias": false,
"hidden_act": "silu", "hidden_size": 32, "initializer_range": 0.02, "intermediate_size": 24,
"max_position_embeddings": 256, "num_attention_heads": 4, "num_hidden_layers": 2, "num_key_value_heads": 2,
"rms_norm_eps": 0.001, "rope_theta": 100.0, "tie_word_embeddings": true, "vocab_size": 40})");
  for (const char* flags :
       {"--ranks 2 --parallel.tensor 2", "--ranks 4 --parallel.tensor 4",
        "--ranks 4 --parallel.tensor 2 --parallel.shard 2 --parallel.shard_level 3",
        "--ranks 4 --parallel.tensor 4 --adapters \"[{rank: 3, dropout: 0.1, modules_to_save: [q_norm, "
        "k_norm]}]\""}) {
    const Outcome outcome =
        run("verify-layout " + yaml() + " --updates 6 --model.path " + model + " " + flags);
    EXPECT_EQ(outcome.code, 0) << flags << ": " << outcome.err;
  }
}

// Biases of routers move by the tokens of all ranks, as integers: by as much as on one rank. (A bias that
// moved the other way would be apart by more than its size.)
TEST_F(DividedModels, MoveBiasesOfRouters) {
  const std::string model = folder() + "/biased_routers";
  make_directories(model);
  write_file(
      model + "/config.json",
      R"({"model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"], "hidden_act": "silu",
"hidden_size": 32, "initializer_range": 0.02, "intermediate_size": 48, "max_position_embeddings": 256,
"num_attention_heads": 4, "num_key_value_heads": 4, "num_hidden_layers": 2, "rms_norm_eps": 1e-6,
"rope_theta": 10000.0, "vocab_size": 48, "q_lora_rank": 12, "kv_lora_rank": 10, "qk_nope_head_dim": 6,
"qk_rope_head_dim": 4, "v_head_dim": 8, "first_k_dense_replace": 1, "n_routed_experts": 8, "n_group": 4,
"topk_group": 2, "num_experts_per_tok": 2, "norm_topk_prob": true, "moe_intermediate_size": 16,
"n_shared_experts": 1, "routed_scaling_factor": 1.5, "scoring_func": "sigmoid", "topk_method": "noaux_tc",
"tie_word_embeddings": true, "attention_bias": false})");
  for (const char* mesh :
       {"--ranks 2", "--ranks 2 --parallel.expert 2", "--ranks 4 --parallel.expert 2 --parallel.tensor 2",
        "--ranks 8 --parallel.expert 4 --parallel.shard 2 --parallel.shard_level 3"}) {
    const Outcome outcome = run("verify-layout " + yaml() + " --updates 6 --train.router.bias_rate 0.01 " +
                                "--model.path " + model + " " + mesh);
    EXPECT_EQ(outcome.code, 0) << mesh << ": " << outcome.err;
    const size_t at = outcome.out.find("weights ");
    ASSERT_NE(at, std::string::npos) << outcome.out;
    EXPECT_LT(std::stod(outcome.out.substr(at + 7)), 1e-2) << mesh;
  }
}

// Of experts on ranks of their own and of experts that tensor ranks divide, by modules and by stacked
// tensors, together with another adapter whose rows are in the same passes. (The update of a matrix whose
// result is a part of a sum is a part of it, too; a rank begins with its part of the matrices that one rank
// begins with.)
TEST_F(DividedModels, HaveAdaptersOfExperts) {
  ASSERT_EQ(run("init " + folder() + "/qwen3-moe-tiny " + folder() + "/adapted_experts").code, 0);
  const std::string model = "--model.path " + folder() + "/adapted_experts ";
  const std::string linears = "{name: linears, rank: 4, dropout: 0.1, exclude_regex: '.*layers.0.*'}";
  for (const std::string& experts :
       {std::string("{name: e, rank: 3, target_modules: [gate_proj, up_proj, down_proj]}"),
        std::string("{name: e, rank: 3, target_parameters: [mlp.experts.gate_up_proj, "
                    "mlp.experts.down_proj, mlp.gate.weight]}")})
    for (const char* mesh : {"--ranks 2 --parallel.expert 2", "--ranks 2 --parallel.tensor 2",
                             "--ranks 4 --parallel.expert 2 --parallel.tensor 2",
                             "--ranks 4 --parallel.expert 2 --parallel.shard 2 --parallel.shard_level 3"}) {
      const Outcome outcome = run("verify-layout " + yaml() + " " + model + "--updates 6 --adapters \"[" +
                                  experts + ", " + linears + "]\" " + mesh);
      EXPECT_EQ(outcome.code, 0) << mesh << ": " << outcome.err;
    }
  // Files hold whole matrices, whatever mesh reads and writes them.
  const std::string flags =
      model +
      "--train.router.balance_loss 0 --train.steps 3 --adapters \"[{name: e, rank: 3, target_parameters: "
      "[mlp.experts.gate_up_proj, mlp.experts.down_proj]}]\" ";
  const std::string one = train("experts_of_one", flags),
                    out =
                        train("experts_of_four", flags + "--ranks 4 --parallel.expert 2 --parallel.tensor 2");
  expect_same_course(out + "/adapters/e", one + "/adapters/e");
  const std::string adapter = out + "/adapters/e/adapter", file = adapter + "/adapter_model.safetensors",
                    saved = read_file(file);
  std::system(fmt::format("rm -r '{}'", adapter).c_str());
  train("experts_of_four", flags);  // reads the state on one rank
  EXPECT_EQ(read_file(file), saved);
}

// The models that parity is tested with: biases, sinks, latent attention, few heads of keys, mixtures,
// hybrids.
TEST_F(DividedModels, AreThoseOfEveryFamily) {
  const std::string goldens = TEMPER_SOURCE_DIR "/tests/goldens/";
  int divided = 0;
  for (const std::string& name : list_directory(goldens)) {
    if (!exists(goldens + name + "/config.json")) continue;
    const Outcome outcome =
        run("verify-layout " + yaml() + " --model.path " + goldens + name + " --ranks 2 --parallel.tensor 2");
    if (outcome.code == 2)
      expect_has(outcome.err, "cannot divide equally");  // three heads
    else
      EXPECT_EQ(outcome.code, 0) << name << ": " << outcome.err;
    divided += outcome.code == 0 ? 1 : 0;
  }
  EXPECT_GE(divided, 15);
}

}  // namespace
}  // namespace temper
