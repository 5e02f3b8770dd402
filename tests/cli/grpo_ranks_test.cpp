// Rollouts by ranks that divide the model: they learn what one rank learns.
#include <algorithm>
#include <cmath>

#include "tests/cli/grpo_fixture.h"

namespace temper {
namespace {

class GrpoRanks : public GrpoCli {
 protected:
  // A mixture with gated delta layers, and fewer heads of keys than four ranks.
  static std::string hybrid() {
    const std::string model = folder() + "/hybrid";
    if (exists(model)) return model;
    const std::string files = folder() + "/hybrid-config";
    std::system(("cp -r " + folder() + "/qwen3-tiny " + files).c_str());
    write_file(files + "/config.json", R"({"model_type": "qwen3_next",
"architectures": ["Qwen3NextForCausalLM"], "hidden_act": "silu", "hidden_size": 64, "intermediate_size": 64,
"initializer_range": 0.02, "max_position_embeddings": 256, "num_hidden_layers": 2, "rms_norm_eps": 1e-6,
"vocab_size": 320, "attention_bias": false, "tie_word_embeddings": true, "moe_intermediate_size": 32,
"num_experts_per_tok": 2, "norm_topk_prob": true, "num_attention_heads": 8, "num_key_value_heads": 2,
"head_dim": 8, "rope_theta": 10000.0, "partial_rotary_factor": 0.5, "num_experts": 8, "decoder_sparse_step": 1,
"mlp_only_layers": [], "router_aux_loss_coef": 0.0, "shared_expert_intermediate_size": 16,
"layer_types": ["linear_attention", "full_attention"], "linear_conv_kernel_dim": 4, "linear_key_head_dim": 8,
"linear_num_key_heads": 8, "linear_num_value_heads": 16, "linear_value_head_dim": 8})");
    EXPECT_EQ(run("init " + files + " " + model).code, 0);
    return model;
  }
  static std::string mixture() {
    const std::string model = folder() + "/mixture";
    if (!exists(model)) {
      EXPECT_EQ(run("init " + folder() + "/qwen3-moe-tiny " + model).code, 0);
    }
    return model;
  }

  // Attention over latents, and a mixture of which a router's biases decide.
  static std::string latent() {
    const std::string model = folder() + "/latent", files = folder() + "/latent-config";
    if (exists(model)) return model;
    std::system(("cp -r " + folder() + "/qwen3-tiny " + files).c_str());
    write_file(files + "/config.json", R"({"model_type": "deepseek_v3",
"architectures": ["DeepseekV3ForCausalLM"], "hidden_act": "silu", "hidden_size": 64, "initializer_range": 0.02,
"intermediate_size": 48, "max_position_embeddings": 256, "num_attention_heads": 4, "num_key_value_heads": 4,
"num_hidden_layers": 2, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "vocab_size": 320, "q_lora_rank": 12,
"kv_lora_rank": 10, "qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "v_head_dim": 8, "first_k_dense_replace": 1,
"n_routed_experts": 8, "n_group": 4, "topk_group": 2, "num_experts_per_tok": 2, "norm_topk_prob": true,
"moe_intermediate_size": 16, "n_shared_experts": 1, "routed_scaling_factor": 1.5, "scoring_func": "sigmoid",
"topk_method": "noaux_tc", "tie_word_embeddings": true, "attention_bias": false})");
    EXPECT_EQ(run("init " + files + " " + model).code, 0);
    return model;
  }

  struct Meshes {
    std::string name;
    std::string flags;  // in addition to the mesh
    std::vector<const char*> meshes;
    std::string adapter = {};  // where its run is
  };
  // Sums over ranks are rounded otherwise than those of one rank, and nothing else is.
  static void expect_same_course(const std::string& config, const Meshes& of) {
    const std::vector<Json> expected = metrics(trained(config, of.name, of.flags) + of.adapter);
    ASSERT_FALSE(expected.empty());
    for (size_t i = 0; i < of.meshes.size(); ++i) {
      SCOPED_TRACE(of.name + of.meshes[i]);
      const std::string out = trained(config, fmt::format("{}_{}", of.name, i), of.flags + of.meshes[i]);
      const std::vector<Json> found = metrics(out + of.adapter);
      ASSERT_EQ(found.size(), expected.size());
      for (size_t line = 0; line < found.size(); ++line) {
        for (const char* same : {"reward", "answers", "answer_tokens", "truncated", "eval_reward"})
          if (expected[line].find(same) != nullptr) {
            EXPECT_EQ(number(found[line], same), number(expected[line], same)) << same << " " << line;
          }
        for (const char* near : {"loss", "grad_norm", "ratio", "kl", "entropy"})
          if (expected[line].find(near) != nullptr) {
            const double value = number(expected[line], near);
            EXPECT_NEAR(number(found[line], near), value, 5e-5 * std::max(1., std::abs(value))) << near;
          }
        if (expected[line].find("ratio") == nullptr) continue;
        // What ranks sampled together is what they train on.
        EXPECT_LT(number(found[line], "log_prob_gap_largest"), 1e-5);
        if (number(found[line], "step") == 1) {
          EXPECT_NEAR(number(found[line], "ratio"), 1, 1e-6);
          EXPECT_NEAR(number(found[line], "kl"), 0, 1e-6);
        }
      }
    }
  }
};

constexpr const char *kTensor = " --ranks 2 --parallel.tensor 2",
                     *kTensor4 = " --ranks 4 --parallel.tensor 4",
                     *kMatrices = " --ranks 2 --parallel.shard 2 --parallel.shard_level 3",
                     *kExperts = " --ranks 2 --parallel.expert 2",
                     *kStages = " --ranks 2 --parallel.pipeline 2 --train.micro_batch_tokens 64",
                     *kApart = " --ranks 2 --parallel.tensor 2 --grpo.engine.parallel.tensor 1";

TEST_F(GrpoRanks, ThatDivideADenseModelLearnWhatOneDoes) {
  if (!has_invariant_kernels()) GTEST_SKIP() << "this processor has no batch-invariant kernels";
  const std::string config = configuration("dense", "  updates_per_rollout: 2\n  policy: {entropy: 0.01}\n",
                                           "eval: {every_steps: 3}\n"),
                    held = " --data.eval [" + folder() + "/held.jsonl]";
  expect_same_course(config,
                     {"dense",
                      held,
                      {kTensor4, " --ranks 4 --parallel.tensor 2 --parallel.sequence false",
                       " --ranks 4 --parallel.tensor 2 --parallel.shard 2 --parallel.shard_level 3"}});
  // Of ranks that answer together one keeps the answers.
  EXPECT_FALSE(exists(folder() + "/dense_0/rollouts.1.jsonl"));
  EXPECT_FALSE(rollouts(folder() + "/dense_2/rollouts.1.jsonl").empty());
  EXPECT_FALSE(exists(folder() + "/dense_2/rollouts.2.jsonl"));
  // More ranks than prompts: some answer nothing, and help the others. And an adapter, whose reference is the
  // model without it.
  expect_same_course(configuration("few", "  loss: dapo\n"),
                     {"few", " --grpo.prompts_per_rollout 1 --train.steps 3", {kMatrices}});
  expect_same_course(configuration("lora", "  kl: {beta: 0.1}\n", "adapters: [{name: a, rank: 4}]\n"),
                     {"lora", " --train.steps 3", {kTensor, kMatrices}, "/adapters/a"});
}

// Rollouts have one order of sums with training, over tokens, latents and tensor ranks: the same bits.
TEST_F(GrpoRanks, ThatDivideAttentionOverLatentsTrainOnWhatTheySampled) {
  if (!has_invariant_kernels()) GTEST_SKIP() << "this processor has no batch-invariant kernels";
  const std::string config =
      configuration("latent", "  updates_per_rollout: 2\n  engine: {batch_invariant: true}\n");
  int number_of_run = 0;
  for (const char* mesh : {kTensor, kTensor4, " --ranks 4 --parallel.tensor 2 --parallel.expert 2"}) {
    const std::vector<Json> lines = metrics(trained(config, fmt::format("latent_{}", number_of_run++),
                                                    " --model.path " + latent() + " --train.steps 4" + mesh));
    EXPECT_EQ(lines.size(), 4u);
    for (const Json& line : lines) EXPECT_EQ(number(line, "log_prob_gap_largest"), 0) << mesh;
  }
}

TEST_F(GrpoRanks, ThatDivideAMixtureLearnWhatOneDoes) {
  if (!has_invariant_kernels()) GTEST_SKIP() << "this processor has no batch-invariant kernels";
  const std::string flags = " --model.path " + mixture() + " --train.steps 4 --train.router.balance_loss 0",
                    both = " --ranks 4 --parallel.tensor 2 --parallel.expert 2",
                    matrices = " --ranks 4 --parallel.expert 2 --parallel.shard 2 --parallel.shard_level 3";
  expect_same_course(configuration("mixture", "  updates_per_rollout: 2\n"),
                     {"mixture_full", flags, {both.c_str(), matrices.c_str()}});
  expect_same_course(
      configuration("replayed", "  updates_per_rollout: 2\n  correction: {routing_replay: true}\n"),
      {"mixture_replayed", flags, {both.c_str()}});
  expect_same_course(
      configuration(
          "mixture_lora", "",
          "adapters: [{name: a, rank: 4, target_modules: [q_proj, gate_proj, up_proj, down_proj]}]\n"),
      {"mixture_lora", " --model.path " + mixture() + " --train.steps 3", {kExperts}, "/adapters/a"});
}

TEST_F(GrpoRanks, ThatDivideAHybridLearnWhatOneDoes) {
  if (!has_invariant_kernels()) GTEST_SKIP() << "this processor has no batch-invariant kernels";
  const std::string flags = " --model.path " + hybrid() + " --train.steps 3",
                    both = " --ranks 4 --parallel.tensor 2 --parallel.expert 2";
  expect_same_course(configuration("hybrid", ""),
                     {"hybrid_full", flags, {kTensor4, kMatrices, both.c_str()}});
  expect_same_course(configuration("hybrid_lora", "", "adapters: [{name: a, rank: 4}]\n"),
                     {"hybrid_lora", flags, {kTensor}, "/adapters/a"});
}

// Rollouts have a copy of the weights then, each bit of which is compared.
TEST_F(GrpoRanks, RollOutInALayoutOfTheirOwn) {
  if (!has_invariant_kernels()) GTEST_SKIP() << "this processor has no batch-invariant kernels";
  const std::string held = " --data.eval [" + folder() + "/held.jsonl]",
                    checks = " --grpo.engine.check_sync true",
                    whole = kMatrices + checks + " --grpo.engine.parallel.tensor 1",
                    other = kTensor + checks + " --grpo.engine.parallel.tensor 1",
                    four = " --ranks 4 --parallel.tensor 2 --parallel.shard 2 --parallel.shard_level 3" +
                           checks + " --grpo.engine.parallel.tensor 4",
                    experts = " --ranks 4 --parallel.shard 4 --parallel.shard_level 3" + checks +
                              " --grpo.engine.parallel.tensor 2 --grpo.engine.parallel.expert 2";
  expect_same_course(configuration("apart", "  updates_per_rollout: 2\n  loss: dapo\n  kl: {beta: 0.1}\n",
                                   "eval: {every_steps: 3}\n"),
                     {"apart", held, {whole.c_str(), other.c_str(), four.c_str()}});
  // Both ranks ask, and both of those that train together learn from all.
  EXPECT_FALSE(rollouts(folder() + "/apart_1/rollouts.1.jsonl").empty());
  expect_same_course(configuration("apart_experts", "  correction: {routing_replay: true}\n"),
                     {"apart_experts",
                      " --model.path " + mixture() + " --train.steps 3 --train.router.balance_loss 0",
                      {experts.c_str()}});
  expect_same_course(
      configuration(
          "apart_lora", "",
          "adapters: [{name: a, rank: 4, target_modules: [q_proj, gate_proj, up_proj, down_proj]}]\n"),
      {"apart_lora", " --model.path " + hybrid() + " --train.steps 3", {experts.c_str()}, "/adapters/a"});
  const std::string train = "train " + configuration("refused", "") + " --output " + folder() + "/refused";
  expect_refused(train + " --grpo.engine.check_sync true", 2,
                 "[grpo.engine.check_sync] is set, but rollouts use the weights");
  expect_refused(train + kTensor + " --grpo.engine.parallel.tensor 2", 2,
                 "[grpo.engine.parallel] is tensor 2 and expert 1, which is how training divides the model");
  expect_refused(train + kTensor + " --grpo.engine.parallel.tensor 3", 2,
                 "[grpo.engine.parallel] tensor 3 and expert 1 are 3 ranks, which 2 cannot be divided into");
  expect_refused(train + kTensor + " --grpo.engine.parallel.expert 2", 2,
                 "[grpo.engine.parallel] [parallel.expert] is 2, but the model has no experts");
}

// Stages compute log-probabilities and updates together, and answer with a copy of the weights that has none.
TEST_F(GrpoRanks, OfStagesLearnWhatOneDoes) {
  if (!has_invariant_kernels()) GTEST_SKIP() << "this processor has no batch-invariant kernels";
  const std::string flags = " --train.steps 4 --data.eval [" + folder() + "/held.jsonl]",
                    checks = " --grpo.engine.check_sync true", two = kStages + checks,
                    four = " --ranks 4 --parallel.pipeline 2 --train.micro_batch_tokens 128" + checks,
                    context = four + " --parallel.context 2",
                    matrices =
                        four + " --parallel.shard 2 --parallel.shard_level 3 --grpo.engine.parallel.tensor 4";
  expect_same_course(configuration("staged", "  updates_per_rollout: 2\n  loss: dapo\n  kl: {beta: 0.1}\n",
                                   "eval: {every_steps: 3}\n"),
                     {"staged", flags, {two.c_str(), context.c_str(), matrices.c_str()}});
  // The scores of an answer are kept once, whoever computes them.
  for (const char* run : {"/staged", "/staged_0", "/staged_1", "/staged_2"}) {
    int64_t scored = 0;
    for (const char* file : {"rollouts.jsonl", "rollouts.1.jsonl", "rollouts.2.jsonl", "rollouts.3.jsonl"})
      if (const std::string path = folder() + run + "/" + file; exists(path))
        scored += std::ranges::count_if(rollouts(path),
                                        [](const Json& line) { return line.find("scores") != nullptr; });
    EXPECT_EQ(scored, 2 * 16) << run;
  }
}

TEST_F(GrpoRanks, OfStagesTrainAdaptersAndMixtures) {
  if (!has_invariant_kernels()) GTEST_SKIP() << "this processor has no batch-invariant kernels";
  const std::string two = std::string(kStages) + " --grpo.engine.check_sync true",
                    experts = " --ranks 4 --parallel.pipeline 2 --parallel.expert 2";
  expect_same_course(configuration("staged_lora", "  kl: {beta: 0.1}\n", "adapters: [{name: a, rank: 4}]\n"),
                     {"staged_lora", " --train.steps 3", {two.c_str()}, "/adapters/a"});
  expect_same_course(configuration("staged_experts", "  correction: {routing_replay: true}\n"),
                     {"staged_experts",
                      " --model.path " + mixture() + " --train.steps 3 --train.router.balance_loss 0",
                      {experts.c_str()}});
  const std::string train = "train " + configuration("staged_refused", "  loss: ppo\n") + " --output " +
                            folder() + "/refused" + kStages;
  expect_refused(train + " --quantize.preset INT8_WEIGHT_ONLY", 2,
                 "[parallel.pipeline] is 2, but answers are sampled with a copy of the weights that has no "
                 "stages, and quantizers cannot be copied; set parallel.pipeline to 1");
  expect_refused(train + " --grpo.critic.rank 4 --parallel.pipeline_schedule zb_h1", 2,
                 "but adapters (grpo.critic.rank) train narrow matrices");
}

// The gradients of every parameter, of advantages, a reference and entropies.
TEST_F(GrpoRanks, HaveTheGradientsOfOne) {
  const std::string config =
      configuration("verified", "  policy: {entropy: 0.01}\n  correction: {type: token}\n");
  for (const std::string& model : {folder() + "/model", mixture(), hybrid()})
    for (const char* mesh :
         {kTensor, " --ranks 4 --parallel.tensor 2 --parallel.shard 2 --parallel.shard_level 3",
          " --ranks 2 --parallel.pipeline 2"})
      for (const char* adapters : {"", " --adapters \"[{rank: 4}]\""}) {
        const Outcome outcome =
            run("verify-layout " + config + " --updates 3 --model.path " + model + mesh + adapters);
        EXPECT_EQ(outcome.code, 0) << model << mesh << adapters << ": " << outcome.err;
      }
}

// In the middle of a rollout, of its scores, between updates.
TEST_F(GrpoRanks, ContinueBitForBit) {
  if (!has_invariant_kernels()) GTEST_SKIP() << "this processor has no batch-invariant kernels";
  const std::string config =
      configuration("killed", "  updates_per_rollout: 2\n  epochs: 2\n  filter: {dynamic_sampling: true}\n");
  struct {
    const char *name, *mesh, *file;
    int count;
  } const cases[] = {{"tensor", kTensor, "rollouts.jsonl", 6},
                     {"tensor", kTensor, "metrics.jsonl", 2},
                     {"matrices", kMatrices, "rollouts.1.jsonl", 3},
                     {"matrices", kMatrices, "rollouts.jsonl", 20},
                     // Others keep the scores than those that compute them.
                     {"apart", kApart, "rollouts.1.jsonl", 12},
                     {"stages", kStages, "rollouts.jsonl", 20},
                     {"stages", kStages, "metrics.jsonl", 2}};
  for (const auto& [name, mesh, file, count] : cases) {
    SCOPED_TRACE(fmt::format("{} {} {}", mesh, file, count));
    const std::string whole = folder() + "/whole_" + name,
                      out = fmt::format("{}/kill_{}_{}_{}", folder(), name, file, count);
    if (!exists(whole)) trained(config, std::string("whole_") + name, mesh);
    const std::string command = fmt::format(
        "LD_PRELOAD={} ASAN_OPTIONS=verify_asan_link_order=0 KILL_CALL=write KILL_FILE={} KILL_COUNT={} {} "
        "train {} --output {}{} >/dev/null 2>&1",
        kill_library(), file, count, TEMPER_BINARY, config, out, mesh);
    EXPECT_NE(std::system(command.c_str()), 0);
    EXPECT_FALSE(exists(out + "/summary.json"));
    const Outcome resumed = run("train " + config + " --output " + out + mesh);
    ASSERT_EQ(resumed.code, 0) << resumed.err;
    EXPECT_EQ(losses(out), losses(whole));
    EXPECT_EQ(read_file(out + "/model/model.safetensors"), read_file(whole + "/model/model.safetensors"));
  }
}

}  // namespace
}  // namespace temper
