// PPO with a critic, as a user has it: both models learn, are stopped and resumed together, and are planned
// for.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <sstream>

#include "tests/cli/grpo_fixture.h"

namespace temper {
namespace {

const char* const kTwice = "  loss: ppo\n  updates_per_rollout: 2\n  epochs: 2\n";

class Ppo : public GrpoCli {
 protected:
  // Sums over ranks are rounded otherwise than those of one rank, and nothing else is.
  static void expect_same_course(const std::vector<Json>& one, const std::vector<Json>& found,
                                 const char* flags) {
    ASSERT_EQ(one.size(), found.size());
    for (size_t i = 0; i < one.size(); ++i) {
      if (one[i].find("reward") != nullptr) {
        EXPECT_EQ(number(one[i], "reward"), number(found[i], "reward")) << i << flags;
      }
      for (const char* key : {"loss", "grad_norm", "value_loss", "critic_grad_norm", "explained_variance"})
        EXPECT_NEAR(number(one[i], key), number(found[i], key), 5e-5 * std::max(1.0, number(one[i], key)))
            << key << " " << i << flags;
    }
  }
  static std::string bytes(const std::string& out, const char* file) { return read_file(out + "/" + file); }
};

// Answers of the digits' task are worth 1 or 0, and the critic finds out how much to expect.
TEST_F(Ppo, PolicyAndCriticLearn) {
  const std::pair<const char*, const char*> ways[] = {{"", "2e-3"},
                                                      {"adapters: [{name: a, rank: 8}]\n", "1e-2"}};
  for (const auto& [adapters, rate] : ways) {
    const std::string name = *adapters == '\0' ? "ppo_rise" : "ppo_rise_adapter";
    std::string out = trained(
        configuration(name, "  loss: ppo\n  critic: {lr: 5e-3, clip: 0, lambda: 0.9}\n", adapters), name,
        fmt::format(" --grpo.prompts_per_rollout 8 --train.steps 40 --train.optimizer.lr {}", rate));
    if (*adapters != '\0') out += "/adapters/a";
    const std::vector<Json> lines = metrics(out);
    double before = 0, after = 0, loss_before = 0, loss_after = 0;
    for (size_t i = 0; i < 6; ++i) {
      const Json& last = lines[lines.size() - 1 - i];
      before += number(lines[i], "reward") / 6;
      after += number(last, "reward") / 6;
      loss_before += number(lines[i], "value_loss") / 6;
      loss_after += number(last, "value_loss") / 6;
    }
    EXPECT_GT(after, before + 0.15) << name;
    EXPECT_LT(loss_after, loss_before) << name;
    for (const Json& line : lines) {
      EXPECT_GT(number(line, "critic_grad_norm"), 0);
      EXPECT_LE(number(line, "explained_variance"), 1);
      EXPECT_EQ(number(line, "value_clipped"), 0);
    }
    EXPECT_EQ(number(lines.front(), "explained_variance"), 0);  // the new head gives 0 for all
    // The critic is a model of its own, which another run may start from.
    EXPECT_TRUE(exists(out + "/critic/model.safetensors"));
    EXPECT_EQ(Json::parse_file(out + "/critic/config.json").at("num_labels").as_int(), 1);
  }
  const std::vector<Json> further = metrics(trained(
      configuration("ppo_further", "  loss: ppo\n  critic: {path: " + folder() + "/ppo_rise/critic}\n"),
      "ppo_further", " --train.steps 2"));
  EXPECT_NE(number(further.front(), "explained_variance"), 0);
}

// While the critic warms up the policy has the bits that it had; the critic learns.
TEST_F(Ppo, ThePolicyWaitsForTheCritic) {
  const std::string config = configuration("warm", "  loss: ppo\n  critic: {warmup_updates: 4}\n");
  const std::string out = trained(config, "warm");
  const std::vector<Json> lines = metrics(out);
  ASSERT_EQ(lines.size(), 6u);
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(number(lines[i], "grad_norm") == 0, i < 4) << i;
    EXPECT_EQ(lines[i].find("ratio") == nullptr, i < 4) << i;
    EXPECT_GT(number(lines[i], "critic_grad_norm"), 0) << i;
  }
  // Answers are by the same weights until then, and trained on afterwards.
  const std::string held = trained(config, "held_at_first",
                                   " --train.steps 5 --checkpoint.every_steps 1 "
                                   "--checkpoint.keep_last 5");
  const auto state = [&](int step, const char* file) {
    return bytes(held, fmt::format("checkpoints/step-{:06}/{}.safetensors", step, file).c_str());
  };
  EXPECT_EQ(state(4, "optimizer"), state(1, "optimizer"));
  EXPECT_NE(state(5, "optimizer"), state(4, "optimizer"));
  EXPECT_NE(state(4, "critic"), state(1, "critic"));
}

TEST_F(Ppo, TwoRanksLearnWhatOneDoes) {
  if (!has_invariant_kernels()) GTEST_SKIP() << "this processor has no batch-invariant kernels";
  const std::string config =
      configuration("ppo_ranks", std::string(kTwice) + "  kl: {beta: 0.1, estimator: k3}\n");
  const std::vector<Json> one = metrics(trained(config, "ppo_one"));
  for (const char* flags : {" --ranks 2", " --ranks 2 --parallel.shard 2 --parallel.shard_level 1",
                            " --ranks 2 --parallel.shard 2 --parallel.shard_level 2"}) {
    const std::string out = fmt::format("ppo_two{}", flags[std::string(flags).size() - 1]);
    const std::vector<Json> two = metrics(trained(config, out, flags));
    expect_same_course(one, two, flags);
  }
}

// Ranks that divide both models, and rollouts in another layout.
TEST_F(Ppo, RanksThatDivideTheModelsLearnWhatOneDoes) {
  if (!has_invariant_kernels()) GTEST_SKIP() << "this processor has no batch-invariant kernels";
  const char* const dense[] = {
      " --ranks 2 --parallel.tensor 2",
      " --ranks 2 --parallel.shard 2 --parallel.shard_level 3",
      " --ranks 2 --parallel.pipeline 2 --train.micro_batch_tokens 64",
      " --ranks 2 --parallel.pipeline 2 --train.micro_batch_tokens 64 --parallel.pipeline_schedule zb_h1",
      " --ranks 4 --parallel.tensor 2 --parallel.shard 2 --parallel.shard_level 3",
      " --ranks 2 --parallel.shard 2 --parallel.shard_level 3 --grpo.engine.parallel.tensor 2",
      " --ranks 2 --parallel.tensor 2 --grpo.engine.parallel.tensor 1 --grpo.engine.check_sync true"};
  const std::string config = configuration("ppo_divided", std::string(kTwice) + "  kl: {beta: 0.1}\n"),
                    adapters = configuration("ppo_divided_lora",
                                             std::string(kTwice) + "  critic: {rank: 4, lr: 5e-3}\n",
                                             "adapters: [{name: a, rank: 4}]\n");
  const auto course = [](const std::string& of, const char* name, const std::string& flags) {
    const std::string out = trained(of, name, flags + " --train.steps 4");
    return metrics(exists(out + "/adapters/a") ? out + "/adapters/a" : out);
  };
  const std::vector<Json> one = course(config, "ppo_divided_one", ""),
                          lora = course(adapters, "ppo_divided_lora_one", "");
  for (size_t i = 0; i < std::size(dense); ++i) {
    expect_same_course(one, course(config, fmt::format("ppo_divided_{}", i).c_str(), dense[i]), dense[i]);
    if (i < 3) {
      const std::string name = fmt::format("ppo_divided_lora_{}", i);
      expect_same_course(lora, course(adapters, name.c_str(), dense[i]), dense[i]);
    }
  }
  // A mixture's routers are left to themselves.
  const std::string model = folder() + "/ppo_mixture",
                    mixture = " --train.router.balance_loss 0 --model.path " + model;
  ASSERT_EQ(run("init " + folder() + "/qwen3-moe-tiny " + model).code, 0);
  const std::vector<Json> experts = course(config, "ppo_experts_one", mixture);
  for (const char* flags :
       {" --ranks 2 --parallel.expert 2", " --ranks 4 --parallel.tensor 2 --parallel.expert 2"})
    expect_same_course(
        experts, course(config, fmt::format("ppo_experts_{}", flags[9]).c_str(), mixture + flags), flags);
  // Adapters of policy and critic, also of experts, with sharded matrices that are gathered when they are
  // used.
  const std::string targets = "target_modules: [q_proj, gate_proj, up_proj, down_proj]",
                    both = configuration(
                        "ppo_experts_lora",
                        std::string(kTwice) + "  critic: {rank: 4, lr: 5e-3, " + targets + "}\n",
                        "adapters: [{name: a, rank: 4, " + targets + "}]\n");
  const char* const divided = " --ranks 4 --parallel.expert 2 --parallel.shard 2 --parallel.shard_level 3";
  expect_same_course(course(both, "ppo_experts_lora_one", mixture),
                     course(both, "ppo_experts_lora_4", mixture + divided), divided);
}

// What is trained of the critic is an adapter and its head; the rest keeps its bits, and is not saved.
TEST_F(Ppo, ACriticLearnsByAnAdapter) {
  const std::string out =
      trained(configuration("ppo_lora", "  loss: ppo\n  critic: {rank: 8, lr: 1e-2, clip: 0, lambda: 0.9}\n"),
              "ppo_lora", " --grpo.prompts_per_rollout 8 --train.steps 40 --train.optimizer.lr 2e-3");
  const std::vector<Json> lines = metrics(out);
  double before = 0, after = 0, loss_before = 0, loss_after = 0;
  for (size_t i = 0; i < 6; ++i) {
    const Json& last = lines[lines.size() - 1 - i];
    before += number(lines[i], "reward") / 6;
    after += number(last, "reward") / 6;
    loss_before += number(lines[i], "value_loss") / 6;
    loss_after += number(last, "value_loss") / 6;
  }
  EXPECT_GT(after, before + 0.15);
  EXPECT_LT(loss_after, loss_before);
  EXPECT_FALSE(exists(out + "/critic/model.safetensors"));
  const std::string weights = bytes(out, "critic/adapter_model.safetensors");
  for (const char* name :
       {"base_model.model.score.weight", "q_proj.lora_A.weight", "down_proj.lora_B.weight"})
    EXPECT_NE(weights.find(name), std::string::npos) << name;
  const Json config = Json::parse_file(out + "/critic/adapter_config.json");
  EXPECT_EQ(config.at("r").as_int(), 8);
  EXPECT_EQ(config.at("lora_alpha").as_int(), 16);
  EXPECT_EQ(config.at("modules_to_save").as_array().at(0).as_string(), "score");
  EXPECT_EQ(config.at("task_type").as_string(), "SEQ_CLS");
}

TEST_F(Ppo, TheKlIsInRewardsOrInTheLoss) {
  std::vector<double> losses;
  for (const char* keys :
       {"in: rewards", "in: rewards, estimator: k2", "in: loss", "in: loss, estimator: k2"}) {
    const std::string out =
        trained(configuration("ppo_kl", fmt::format("  loss: ppo\n  kl: {{beta: 0.5, {}}}\n", keys)),
                fmt::format("ppo_kl_{}", losses.size()));
    EXPECT_GT(std::abs(number(metrics(out)[3], "kl")), 0);
    losses.push_back(number(metrics(out)[3], "value_loss"));
  }
  for (size_t i = 0; i < losses.size(); ++i)
    for (size_t j = 0; j < i; ++j) EXPECT_NE(losses[i], losses[j]) << i << " " << j;
}

struct KillMoment {
  const char *call, *file;
  int count;
};

class KilledPpo : public GrpoCli, public testing::WithParamInterface<std::pair<const char*, KillMoment>> {
 protected:
  // Of a run with these flags, and of one of that kind which was never killed.
  static void expect_the_same(const std::string& kind, const std::string& flags, const std::string& keys,
                              const char* name, const KillMoment& moment) {
    const std::string library = kill_library(), whole = folder() + "/" + kind + "_whole",
                      out = folder() + "/" + kind + "_kill_" + name, all = flags + " --train.steps 10";
    const std::string config = configuration(kind + "_killed", std::string(kTwice) + keys);
    if (!exists(whole)) trained(config, kind + "_whole", all);
    const std::string command = fmt::format(
        "LD_PRELOAD={} ASAN_OPTIONS=verify_asan_link_order=0 KILL_CALL={} KILL_FILE={} KILL_COUNT={} {} "
        "train {} --output {}{} 2>/dev/null",
        library, moment.call, moment.file, moment.count, TEMPER_BINARY, config, out, all);
    EXPECT_NE(std::system(command.c_str()), 0);
    EXPECT_FALSE(exists(out + "/summary.json"));
    const Outcome resumed = run("train " + config + " --output " + out + all);
    ASSERT_EQ(resumed.code, 0) << resumed.err;
    EXPECT_EQ(losses(out), losses(whole));
    const std::vector<std::string> files =
        exists(whole + "/critic/model.safetensors")
            ? std::vector<std::string>{"/model/model.safetensors", "/critic/model.safetensors"}
            : std::vector<std::string>{"/model/model.safetensors", "/critic/adapter_model.safetensors"};
    for (const std::string& file : files) EXPECT_EQ(read_file(out + file), read_file(whole + file)) << file;
    for (const std::string& file : list_directory(whole + "/checkpoints/step-000010"))
      if (file.starts_with("critic")) {
        EXPECT_EQ(read_file(out + "/checkpoints/step-000010/" + file),
                  read_file(whole + "/checkpoints/step-000010/" + file))
            << file;
      }
  }
};

TEST_P(KilledPpo, ContinuesBitForBit) {
  if (!has_invariant_kernels()) GTEST_SKIP() << "this processor has no batch-invariant kernels";
  const auto& [name, moment] = GetParam();
  expect_the_same("ppo", "", "  critic: {lr: 2e-3, warmup_updates: 2}\n", name, moment);
}

// The same of ranks that divide both models, and of a critic that learns by an adapter.
TEST_P(KilledPpo, ContinuesOnRanksAndWithAnAdapter) {
  if (!has_invariant_kernels()) GTEST_SKIP() << "this processor has no batch-invariant kernels";
  const auto& [name, moment] = GetParam();
  expect_the_same("ppo_tensor", " --ranks 2 --parallel.tensor 2", "  critic: {rank: 4, lr: 2e-3}\n", name,
                  moment);
}

INSTANTIATE_TEST_SUITE_P(
    Moments, KilledPpo,
    testing::Values(std::pair{"in_the_first_rollout", KillMoment{"write", "rollouts.jsonl", 6}},
                    std::pair{"in_the_warm_up", KillMoment{"write", "metrics.jsonl", 1}},
                    std::pair{"in_scores", KillMoment{"write", "rollouts.jsonl", 20}},
                    std::pair{"between_updates", KillMoment{"write", "metrics.jsonl", 3}},
                    std::pair{"in_the_second_rollout", KillMoment{"write", "rollouts.jsonl", 45}},
                    std::pair{"in_a_checkpoint", KillMoment{"rename", "step-", 2}}),
    [](const auto& info) { return std::string(info.param.first); });

// Half of what is planned for weights and states is the critic's.
TEST_F(Ppo, PlansCountTheCritic) {
  const auto planned = [](const std::string& text, const std::string& region) {
    const size_t at = text.find("\n" + region);
    EXPECT_NE(at, std::string::npos) << text;
    return std::strtod(text.c_str() + at + 1 + region.size(), nullptr);
  };
  const auto plan = [](const char* name, const std::string& keys) {
    const Outcome outcome = run("train " + configuration(name, keys) +
                                " --dry-run --explain-memory --output " + folder() + "/" + name);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.err + outcome.out;
  };
  const std::string without = plan("plan_dapo", "  loss: dapo\n"), with = plan("plan_ppo", "  loss: ppo\n");
  EXPECT_NEAR(planned(with, "optimizer"), 2 * planned(without, "optimizer"), 0.02);
  EXPECT_NEAR(planned(with, "weights"), 2 * planned(without, "weights"), 0.05);
  EXPECT_NEAR(planned(with, "gradients"), planned(without, "gradients"), 0.02);  // one after the other
}

// Bytes of files in a folder, and in those below.
int64_t bytes_below(const std::string& folder) {
  int64_t bytes = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) bytes += static_cast<int64_t>(entry.file_size());
  return bytes;
}

// What is left on disk at the end is the most that there is at once: two checkpoints and both results.
// Rows of a plan are full, but their answers are such as the run's own: something is behind each token of
// which the critic says a value, and none is longer than those of which a loss with a constant knows.
TEST_F(Ppo, PlansOfRowsOfAnyLength) {
  for (const char* loss : {"ppo", "dr_grpo", "rloo"})
    for (const char* packing : {"best_fit", "none"})
      for (const int group : {1, 4})
        for (const int length : {40, 41, 48}) {
          if (group == 1 && std::string_view(loss) != "ppo") continue;
          const Outcome outcome = run(
              fmt::format("train {} --output {}/any_rows --dry-run --grpo.group_size {} --data.packing {} "
                          "--data.max_length {}",
                          configuration("any_rows", fmt::format("  loss: {}\n", loss)), folder(), group,
                          packing, length));
          EXPECT_EQ(outcome.code, 0) << loss << packing << " " << group << " " << length << outcome.err;
        }
  for (const char* loss : {"ppo", "rloo"})
    trained(configuration("unpacked", fmt::format("  loss: {}\n", loss)), std::string("unpacked_") + loss,
            " --data.packing none --train.steps 2");
}

TEST_F(Ppo, PlansOfDiskCountTheCritic) {
  for (const char* keys : {"", "  critic: {rank: 64}\n"}) {
    const std::string name = *keys == 0 ? "ppo_disk" : "ppo_disk_lora", out = folder() + "/" + name;
    const std::string command = "train " + configuration(name, std::string("  loss: ppo\n") + keys) +
                                " --output " + out + " --checkpoint.keep_last 2 --train.steps 4";
    const Outcome dry = run(command + " --dry-run");
    const size_t at = dry.out.find("\ndisk ");
    ASSERT_NE(at, std::string::npos) << dry.err;
    std::istringstream text(dry.out.substr(at + 6));
    double planned = 0;
    std::string unit;
    text >> planned >> unit;
    ASSERT_EQ(unit, "MiB") << dry.out;
    ASSERT_EQ(run(command).code, 0);
    const double most = static_cast<double>(bytes_below(out + "/checkpoints") + bytes_below(out + "/model") +
                                            bytes_below(out + "/critic")) /
                        (1 << 20);
    EXPECT_NEAR(planned / most, 1, 0.1) << name;
    // With room for the policy alone the run ends before its first step.
    const std::string little =
        fmt::format("env LD_PRELOAD={} ASAN_OPTIONS=verify_asan_link_order=0 FREE_BYTES={} ", kill_library(),
                    static_cast<int64_t>(0.9 * planned * (1 << 20)));
    const auto with_little = [&](const std::string& of) {
      const TemporaryDirectory files;
      const int status =
          std::system((little + TEMPER_BINARY + " " + of + " >/dev/null 2>" + (files / "err")).c_str());
      return std::pair(WEXITSTATUS(status), read_file(files / "err"));
    };
    const std::string small = folder() + "/" + name + "_small";
    const std::string same = " --output " + small + " --checkpoint.keep_last 2 --train.steps 4";
    const auto [code, said] =
        with_little("train " + configuration(name, std::string("  loss: ppo\n") + keys) + same);
    EXPECT_EQ(code, 4) << said;
    expect_has(said, "[" + small + "] needs ");
    EXPECT_FALSE(exists(small + "/rollouts.jsonl"));
    if (*keys == 0) {
      EXPECT_EQ(with_little("train " + configuration("no_critic", "") + same).first, 0);
    }
  }
}

TEST_F(Ppo, MistakesAreNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {"  critic: {lr: 1e-3}\n", "[grpo.critic.lr] is set, but loss grpo has no critic"},
      {"  loss: dapo\n  critic: {lambda: 0.5}\n", "[grpo.critic.lambda] is set, but loss dapo has no critic"},
      {"  loss: ppo\n  critic: {warmup_updates: 6}\n",
       "[grpo.critic.warmup_updates] is 6, but train.steps is 6"},
      {"  loss: ppo\n  critic: {gamma: 0}\n", "grpo.critic.gamma"},
      {"  loss: ppo\n  critic: {lambda: 1.5}\n", "grpo.critic.lambda"},
      {"  critic: {rank: 4}\n", "[grpo.critic.rank] is set, but loss grpo has no critic"},
      {"  loss: ppo\n  critic: {alpha: 4}\n", "[grpo.critic.alpha] is set, but the critic has no adapter"},
      {"  loss: ppo\n  critic: {rank: 4, target_modules: [nowhere]}\n", "[grpo.critic.target_modules]"},
      {"  loss: ppo\n  critic: {path: nowhere}\n", "[grpo.critic.path] 'nowhere'"},
      {"  loss: ppo\n  critic: {gae_lambda: 0.9}\n", "lambda"},
      {"  loss: ppo\n  policy: {advantage_scale: group}\n", "[grpo.policy.advantage_scale] is set"},
      {"  kl: {in: loss}\n", "[grpo.kl.in] is set, but only loss ppo reads it"},
      {"  loss: reinforce_pp\n  kl: {estimator: k2}\n", "[grpo.kl.estimator] is set"}};
  for (const auto& [keys, message] : cases)
    expect_refused("train " + configuration("ppo_mistake", keys) + " --output " + folder() + "/ppo_mistake",
                   2, message);
  const std::string two = configuration("ppo_two_adapters", "  loss: ppo\n",
                                        "adapters: [{name: a, rank: 4}, {name: b, rank: 4}]\n");
  expect_refused("train " + two + " --output " + folder() + "/ppo_mistake", 2, "a critic is of one policy");
}

}  // namespace
}  // namespace temper
