// Learning from rewards of the model's own answers, as a user has it: rollouts, updates, stopped and resumed,
// refused.
#include <algorithm>
#include <cmath>

#include "tests/cli/grpo_fixture.h"

namespace temper {
namespace {

// The policy that training computes is the one that rollouts sampled from, at every temperature, also where
// others raise it to 0.01 on one side.
TEST_F(GrpoCli, TheFirstUpdateHasRatiosOfOne) {
  if (!has_invariant_kernels()) GTEST_SKIP() << "this processor has no batch-invariant kernels";
  for (const char* temperature : {"0.004", "0.6", "1", "1.3"})
    for (const char* top_p : {"1", "0.9"}) {
      const std::string out = trained(
          configuration("ratios",
                        fmt::format("  sampling: {{temperature: {}, top_p: {}}}\n", temperature, top_p)),
          fmt::format("ratios_{}_{}", temperature, top_p));
      for (const Json& line : metrics(out)) {
        EXPECT_EQ(number(line, "ratio"), 1) << temperature;
        EXPECT_EQ(number(line, "log_prob_gap_largest"), 0) << temperature << " " << top_p;
        if (number(line, "step") == 1) {
          EXPECT_EQ(number(line, "kl"), 0);  // to the model as it was
        }
      }
      // The answers to a prompt are all the same near 0, and teach nothing.
      if (std::string_view(temperature) != "0.004") {
        EXPECT_GT(std::abs(number(metrics(out).back(), "kl")), 0);
      }
      double least = 0;
      for (const Json& line : rollouts(out + "/rollouts.jsonl"))
        for (const Json& passage : line.at("passages").as_array())
          for (const Json& each : passage.at("log_probs").as_array())
            least = std::min(least, each.as_double());
      EXPECT_LT(least, 0) << temperature;  // not the certainty that every policy has
    }
}

TEST_F(GrpoCli, SamplesAreRows) {
  const std::string out = trained(configuration("rows", ""), "rows");
  const std::vector<Json> lines = rollouts(out + "/rollouts.jsonl");
  ASSERT_EQ(lines.size(), 6u * 16);
  double reward = 0;
  for (size_t i = 0; i < 16; ++i) {
    EXPECT_EQ(lines[i].at("rollout").as_int(), 0);
    const Json& passage = lines[i].at("passages").as_array().at(0);
    const size_t tokens = passage.at("ids").as_array().size();
    EXPECT_GE(tokens, 1u);
    EXPECT_LE(tokens, 7u);
    EXPECT_EQ(passage.at("log_probs").as_array().size(), tokens);
    EXPECT_EQ(passage.at("sampled").as_array().size(), tokens);
    ASSERT_EQ(passage.at("versions").as_array().size(), tokens);
    EXPECT_EQ(passage.at("versions").as_array().back().as_int(), 0);
    reward += number(lines[i], "reward");
  }
  // Weights have had as many updates as there were rollouts before.
  for (const Json& line : lines)
    EXPECT_EQ(line.at("passages").as_array().at(0).at("versions").as_array().front().as_int(),
              line.at("rollout").as_int());
  EXPECT_NEAR(number(metrics(out).front(), "reward"), reward / 16, 1e-12);
  EXPECT_GT(reward, 0);
  EXPECT_LT(reward, 16);
  const Outcome shown = run("rollouts show " + out + " --rollout 2 --most 3");
  EXPECT_EQ(shown.code, 0) << shown.err;
  expect_has(shown.out, "What is ");
  expect_has(shown.out, "rollout 2");
}

// What top_p, top_k and min_p left out is known of each token, and does not touch the log-probabilities.
TEST_F(GrpoCli, TheKeptProbabilityIsRecorded) {
  const std::string
      cut = "  sampling: {top_p: 0.9, top_k: 40, min_p: 0.001}\n  correction: {type: token, cap: 100",
      full = trained(configuration("kept", cut + "}\n"), "kept_full"),
      truncated = trained(configuration("kept", cut + ", rollout_log_probs: truncated}\n"), "kept_truncated"),
      all = trained(configuration("kept_all", ""), "kept_all");
  double mass = 0, tokens = 0;
  for (const Json& line : rollouts(full + "/rollouts.jsonl")) {
    if (line.find("passages") == nullptr || line.at("rollout").as_int() != 5) continue;
    const Json& passage = line.at("passages").as_array().at(0);
    const Json::Array &kept = passage.at("kept").as_array(), &log_probs = passage.at("log_probs").as_array();
    ASSERT_EQ(kept.size(), log_probs.size());
    for (size_t i = 0; i < kept.size(); ++i) {
      EXPECT_LT(kept[i].as_double(), 0);  // 40 of random weights' tokens never have 0.9
      EXPECT_LE(log_probs[i].as_double(), kept[i].as_double());  // what was sampled was kept
      mass += std::exp(kept[i].as_double());
      ++tokens;
    }
  }
  EXPECT_LT(mass / tokens, 0.95);
  const Outcome shown = run("rollouts show " + full);
  expect_has(shown.out,
             fmt::format("top_k, top_p and min_p kept {:.4g} % of the probability", 100 * mass / tokens));
  EXPECT_EQ(run("rollouts show " + all).out.find("kept"), std::string::npos);
  EXPECT_EQ(read_file(all + "/rollouts.jsonl").find("kept"), std::string::npos);
  // The same answers to the first prompts, which are trained on with less weight.
  const Json first = metrics(full).front(), other = metrics(truncated).front();
  EXPECT_EQ(number(first, "reward"), number(other, "reward"));
  EXPECT_EQ(number(first, "log_prob_gap"), number(other, "log_prob_gap"));
  EXPECT_GT(number(first, "grad_norm"), 1.05 * number(other, "grad_norm"));
}

TEST_F(GrpoCli, EveryLossLearns) {
  for (const char* loss :
       {"grpo", "dr_grpo", "dapo", "gspo", "cispo", "reinforce_pp", "reinforce_pp_baseline", "rloo"}) {
    const std::string out = trained(
        configuration("losses",
                      fmt::format("  loss: {}\n  kl: {{beta: 0.05}}\n  policy: {{entropy: 0.01}}\n", loss)),
        loss);
    ASSERT_EQ(metrics(out).size(), 6u) << loss;
    for (const Json& line : metrics(out)) EXPECT_TRUE(std::isfinite(number(line, "loss"))) << loss;
    EXPECT_GT(number(metrics(out).front(), "grad_norm"), 0) << loss;
  }
}

// Random weights find out what is wanted.
TEST_F(GrpoCli, RewardsRise) {
  const std::pair<const char*, const char*> ways[] = {
      {"", "2e-3 --train.steps 30"}, {"adapters: [{name: a, rank: 8}]\n", "1e-2 --train.steps 60"}};
  for (const auto& [adapters, flags] : ways) {
    const std::string name = *adapters == '\0' ? "rise" : "rise_adapter";
    std::string out = trained(configuration(name, "  kl: {beta: 0}\n", adapters), name,
                              fmt::format(" --grpo.prompts_per_rollout 8 --train.optimizer.lr {}", flags));
    if (*adapters != '\0') out += "/adapters/a";
    const std::vector<Json> lines = metrics(out);
    double before = 0, after = 0;
    for (size_t i = 0; i < 6; ++i) {
      before += number(lines[i], "reward") / 6;
      after += number(lines[lines.size() - 1 - i], "reward") / 6;
    }
    EXPECT_GT(after, before + 0.15) << name;
  }
}

TEST_F(GrpoCli, AnAdapterHasItsModelAsReference) {
  const std::string out =
      trained(configuration("adapter", "  kl: {beta: 0.1}\n", "adapters: [{name: a, rank: 4}]\n"), "adapter");
  const std::vector<Json> lines = metrics(out + "/adapters/a");
  ASSERT_EQ(lines.size(), 6u);
  EXPECT_NEAR(number(lines.front(), "kl"), 0, 1e-9);
  EXPECT_GT(number(lines.back(), "kl"), 0);
  EXPECT_TRUE(exists(out + "/adapters/a/rollouts.jsonl"));
  expect_refused("rollouts show " + out, 2, "give an adapter's folder: " + out + "/adapters/a\n");
  expect_refused("rollouts show " + folder(), 2, "give the folder of a run with recipe grpo");
}

TEST_F(GrpoCli, TwoRanksLearnWhatOneDoes) {
  if (!has_invariant_kernels()) GTEST_SKIP() << "this processor has no batch-invariant kernels";
  const std::string config = configuration("ranks", "  loss: dapo\n");
  const std::vector<Json> one = metrics(trained(config, "one")),
                          two = metrics(trained(config, "two", " --ranks 2"));
  ASSERT_EQ(one.size(), two.size());
  EXPECT_EQ(number(one[0], "reward"), number(two[0], "reward"));
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(number(one[i], "grad_norm"), number(two[i], "grad_norm"), 1e-4);
  EXPECT_TRUE(exists(folder() + "/two/rollouts.1.jsonl"));
}

// A mixture whose updates take the experts of their rollouts, on one rank and on two.
TEST_F(GrpoCli, ExpertsOfRolloutsAreTakenAgain) {
  const std::string model = folder() + "/mixture";
  ASSERT_EQ(run("init " + folder() + "/qwen3-moe-tiny " + model).code, 0);
  const std::string config = configuration(
                        "replay",
                        "  correction: {routing_replay: true}\n  updates_per_rollout: 2\n  kl: {beta: 0}\n"),
                    flags = " --model.path " + model + " --train.steps 4";
  const std::vector<Json> one = metrics(trained(config, "replay", flags));
  ASSERT_EQ(one.size(), 4u);
  const std::vector<Json> lines = rollouts(folder() + "/replay/rollouts.jsonl");
  const Json& passage = lines.front().at("passages").as_array().at(0);
  EXPECT_EQ(passage.at("experts").as_array().size(),
            (passage.at("prompt").as_array().size() + passage.at("ids").as_array().size() - 1) * 3 * 2);
  expect_refused("train " + config + " --output " + folder() + "/replay_dense", 2,
                 "[grpo.correction.routing_replay] is true, but the model has no routers");
  if (!has_invariant_kernels())
    GTEST_SKIP() << "this processor has no batch-invariant kernels: ranks sample other tokens";
  const std::vector<Json> two = metrics(trained(config, "replay_ranks", flags + " --ranks 2"));
  EXPECT_NEAR(number(two[1], "grad_norm"), number(one[1], "grad_norm"), 1e-3 * number(one[1], "grad_norm"));
}

// Held-out prompts are answered greedily, and the best weights are kept.
TEST_F(GrpoCli, HeldOutPromptsAreJudged) {
  const std::string out = trained(configuration("held", ""), "held",
                                  " --data.eval [" + folder() + "/held.jsonl] --eval.every_steps 3");
  int evaluations = 0;
  for (const Json& line : metrics(out)) evaluations += line.find("eval_reward") != nullptr;
  EXPECT_EQ(evaluations, 2);
  EXPECT_TRUE(exists(out + "/best/model.safetensors"));
  // The result is rewards, not the loss.
  const Json summary = Json::parse_file(out + "/summary.json");
  std::vector<double> rewards, judged;
  for (const Json& line : metrics(out)) {
    if (line.find("reward") != nullptr) rewards.push_back(number(line, "reward"));
    if (line.find("eval_reward") != nullptr) judged.push_back(number(line, "eval_reward"));
  }
  for (const auto& [name, values] : {std::pair{"reward", rewards}, {"eval_reward", judged}}) {
    const Json& span = summary.at(name);
    EXPECT_NEAR(number(span, "first"), values.front(), 1e-5);
    EXPECT_NEAR(number(span, "last"), values.back(), 1e-5);
    EXPECT_NEAR(number(span, "best"), *std::max_element(values.begin(), values.end()), 1e-5);
  }
  EXPECT_TRUE(summary.at("eval_loss").is_null());
  for (const char* const text : {">reward<", "training reward", "evaluation reward"})
    expect_has(read_file(out + "/loss.svg"), text);
  // One that leaves no room for an answer is named before anything is trained, or left out.
  std::string rows = prompts(6);
  rows.insert(rows.find('\n') + 1, R"({"prompt": ")" + std::string(60, 'x') + "\", \"answer\": \"1\"}\n");
  write_file(folder() + "/held_long.jsonl", rows);
  const std::string command = "train " + configuration("held", "") + " --eval.every_steps 3 --data.eval [" +
                              folder() + "/held_long.jsonl]";
  expect_refused(command + " --output " + folder() + "/held_long", 2, "held_long.jsonl:2] the prompt has");
  EXPECT_FALSE(exists(folder() + "/held_long/rollouts.jsonl"));
  for (const char* ranks : {"1", "2"}) {
    const Outcome outcome =
        run(command + " --output " + folder() + "/held_" + ranks + " --data.overflow drop --ranks " + ranks);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    expect_has(outcome.err + outcome.out, "evaluations ask 6 of 7 rows of data.eval");
  }
}

struct KillMoment {
  const char *call, *file;
  int count;
};

class KilledGrpo : public GrpoCli, public testing::WithParamInterface<std::pair<const char*, KillMoment>> {};

// In the middle of a rollout, between a rollout and its updates, between updates, in a checkpoint.
TEST_P(KilledGrpo, ContinuesBitForBit) {
  if (!has_invariant_kernels()) GTEST_SKIP() << "this processor has no batch-invariant kernels";
  const auto& [name, moment] = GetParam();
  const std::string library = kill_library(), whole = folder() + "/kept_whole",
                    out = folder() + "/kill_" + name;
  const std::string config =
      configuration("killed", "  updates_per_rollout: 2\n  epochs: 2\n  filter: {dynamic_sampling: true}\n");
  if (!exists(whole)) {
    trained(config, "kept_whole");
  }
  // Groups that are not trained on are left out, and have no scores.
  double left_out = 0;
  for (const Json& line : metrics(whole))
    if (line.find("groups_without_spread") != nullptr) left_out += number(line, "groups_without_spread");
  EXPECT_GT(left_out, 0);
  const std::string command = fmt::format(
      "LD_PRELOAD={} ASAN_OPTIONS=verify_asan_link_order=0 KILL_CALL={} KILL_FILE={} KILL_COUNT={} {} "
      "train {} --output {} 2>/dev/null",
      library, moment.call, moment.file, moment.count, TEMPER_BINARY, config, out);
  EXPECT_NE(std::system(command.c_str()), 0);
  EXPECT_FALSE(exists(out + "/summary.json"));
  const size_t before = rollouts(out + "/rollouts.jsonl").size();
  // Keys that change no answer may be others now.
  const Outcome resumed = run("train " + config + " --output " + out +
                              " --grpo.engine.batch 5 --grpo.engine.sleep [optimizer,gradients]");
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_EQ(losses(out), losses(whole));
  EXPECT_EQ(read_file(out + "/model/model.safetensors"), read_file(whole + "/model/model.safetensors"));
  // Each answer is there once, the same as without the interruption.
  const auto sorted = [](const std::string& file) {
    std::vector<std::string> lines;
    for (const Json& line : rollouts(file))
      if (line.find("passages") != nullptr)
        lines.push_back(fmt::format("{} {} {} {}", line.at("rollout").dump(), line.at("group").dump(),
                                    line.at("sample").dump(), line.at("text").dump()));
    std::sort(lines.begin(), lines.end());
    return lines;
  };
  EXPECT_EQ(sorted(out + "/rollouts.jsonl"), sorted(whole + "/rollouts.jsonl"));
  EXPECT_GT(before, 0u);
}

INSTANTIATE_TEST_SUITE_P(
    Moments, KilledGrpo,
    testing::Values(std::pair{"in_the_first_rollout", KillMoment{"write", "rollouts.jsonl", 6}},
                    std::pair{"in_scores", KillMoment{"write", "rollouts.jsonl", 20}},
                    std::pair{"between_updates", KillMoment{"write", "metrics.jsonl", 2}},
                    std::pair{"after_a_checkpoint", KillMoment{"write", "metrics.jsonl", 4}},
                    std::pair{"in_the_second_rollout", KillMoment{"write", "rollouts.jsonl", 45}},
                    std::pair{"in_a_checkpoint", KillMoment{"rename", "step-", 2}}),
    [](const auto& info) { return std::string(info.param.first); });

TEST_F(GrpoCli, MistakesAreNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {"  group_size: 1\n", "[grpo.group_size] is 1, but loss grpo compares"},
      {"  sampling: {temperature: 0}\n",
       "'grpo.sampling.temperature': expected a number at least 0.0001, found '0'"},
      {"  updates_per_rollout: 3\n",
       "[grpo.updates_per_rollout] is 3, which does not divide prompts_per_rollout, 4"},
      {"  loss: dapo\n  kl: {estimator: k2}\n", "[grpo.kl.estimator] is set, but grpo.kl.beta is 0"},
      {"  loss: ppo\n  kl: {in: loss}\n", "[grpo.kl.in] is set, but grpo.kl.beta is 0"},
      {"  kl: {estimator: k1}\n", "[grpo.kl.estimator] k1 as a part of the loss has a gradient of 0"},
      {"  kl: {estimator: k2, unbiased: true}\n", "[grpo.kl.unbiased] is true, but k2 has the gradient"},
      {"  loss: rloo\n  kl: {beta: 0.1, unbiased: true}\n",
       "[grpo.kl.unbiased] is true, but the KL divergence lowers rewards; leave it out"},
      {"  loss: dapo\n  kl: {unbiased: true}\n", "[grpo.kl.unbiased] is set, but grpo.kl.beta is 0"},
      {"  sampling: {stop: [a, '']}\n", "[grpo.sampling.stop] has an empty text"},
      {"  policy: {ratio_max: 3}\n", "only loss cispo reads it"},
      {"  loss: cispo\n  policy: {clip_high: 3}\n", "loss cispo does not clip"},
      {"  kl: {beta: 0, reference: nowhere}\n", "[grpo.kl.reference] is set, but grpo.kl.beta is 0"},
      {"  kl: {reference: nowhere}\n", "[grpo.kl.reference] 'nowhere'"},
      {"  sampling: {max_new_tokens: 48}\n", "[grpo.sampling.max_new_tokens] is 48, but data.max_length"},
      {"  sampling: {max_new_tokens: 40}\n", "the prompt has"},
      {"  rewards: []\n", "[grpo.rewards] is missing"},
      {"  rewards: [{type: nothing}]\n", "nothing"},
      {"  correction: {cap: 3}\n", "grpo.correction.type is none"},
      {"  sampling: {top_p: 0.9}\n  correction: {rollout_log_probs: truncated}\n",
       "grpo.correction.type is none"},
      {"  correction: {type: token, rollout_log_probs: truncated}\n",
       "none of top_k, top_p and min_p leaves a token out"},
      {"  sampling: {min_p: 1.5}\n", "grpo.sampling.min_p"},
      {"  rewards: [{type: exact_match, weight: 0}]\n", "[grpo.rewards] all weights are 0"},
      {"  engine: {cache_tokens: 16}\n", "tokens of cache"},
      {"  num_generations: 3\n", "group_size"}};
  for (const auto& [keys, message] : cases) {
    std::string config = configuration("mistake", keys);
    if (std::string(keys).find("group_size") != std::string::npos) {
      // A key may be written once.
      std::string text = read_file(config);
      const std::string key = "  group_size: 4\n";
      text.erase(text.find(key), key.size());
      write_file(config, text);
    }
    expect_refused("train " + config + " --output " + folder() + "/mistake", 2, message);
  }
  expect_refused(
      "train " + configuration("rows", "") + " --output " + folder() + "/mistake --train.rows_per_step 2", 2,
      "[train.rows_per_step] is set, but recipe grpo makes its rows itself");
  expect_refused("train " + configuration("bf16", "  engine: {batch_invariant: true}\n") + " --output " +
                     folder() + "/mistake --model.dtype bfloat16",
                 2, "[grpo.engine.batch_invariant] is true, but such kernels compute float32 on the CPU");
  // Every answer is worth the same.
  const std::string same = configuration(
      "same",
      "  rewards: [{type: pattern, pattern: '$'}]\n  filter: {dynamic_sampling: true, max_rounds: 2}\n");
  for (const char* const ranks : {"", " --ranks 2", " --ranks 2 --parallel.tensor 2"})
    expect_refused("train " + same + " --output " + folder() + "/same" + ranks, 2,
                   "[grpo.filter.dynamic_sampling] after 2 rounds");
}

TEST_F(GrpoCli, AnswersThatCannotDifferOrAreTooManyAreRefused) {
  for (const char* key : {"top_k", "min_p"})
    expect_refused(
        "train " + configuration("alike", fmt::format("  sampling: {{{}: 1}}\n", key)) + " --output " +
            folder() + "/alike",
        2, fmt::format("[grpo.sampling.{}] is 1, with which all answers to a prompt are the same", key));
  expect_refused("train " + configuration("alike", "  sampling: {temperature: 1e-40}\n") + " --output " +
                     folder() + "/alike",
                 2, "'grpo.sampling.temperature': expected a number at least 0.0001");
  expect_refused("train " + configuration("alike", "") + " --output " + folder() +
                     "/alike --grpo.prompts_per_rollout 100000000",
                 2, "[grpo.prompts_per_rollout] is 100000000, and each gets 4 answers: more than 1048576");
  // Nothing compares the answers to one prompt here.
  trained(configuration("greedy", "  loss: reinforce_pp\n  sampling: {top_k: 1}\n"), "greedy",
          " --train.steps 1");
}

// Updates, evaluations and checkpoints that are written meanwhile are those of a run in which nothing sleeps.
TEST_F(GrpoCli, WhatSleepsDuringRolloutsChangesNothing) {
  for (const char* more : {"", "adapters: [{name: a, rank: 4}]\n"}) {
    const std::string config =
        configuration("sleep", "  updates_per_rollout: 2\n  filter: {dynamic_sampling: true}\n", more);
    const std::string
        held = " --data.eval [" + folder() + "/held.jsonl] --eval.every_steps 3",
        sleeps = " --checkpoint.async true --grpo.engine.sleep [optimizer,gradients] --explain-memory",
        name = *more == 0 ? "" : "_adapter";
    const std::string awake = trained(config, "awake" + name, held);
    const Outcome outcome =
        run("train " + config + " --output " + folder() + "/asleep" + name + held + sleeps);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    expect_has(outcome.err + outcome.out, "updates     rollouts");
    expect_has(outcome.err + outcome.out, "Offloaded to the CPU during rollouts:");
    const std::string of = *more == 0 ? "" : "/adapters/a", asleep = folder() + "/asleep" + name;
    EXPECT_EQ(losses(asleep + of), losses(awake + of));
    for (const char* file :
         {"/checkpoints/step-000006/optimizer.safetensors", "/checkpoints/step-000004/optimizer.safetensors"})
      EXPECT_EQ(read_file(asleep + of + file), read_file(awake + of + file)) << file;
  }
}

TEST_F(GrpoCli, RolloutsGetTheMemoryThatTrainingLeaves) {
  const std::string config = configuration("many", "  updates_per_rollout: 16\n  engine: {batch: 256}\n");
  std::string text = read_file(config);
  text.replace(text.find("prompts_per_rollout: 4"), 22, "prompts_per_rollout: 64");
  write_file(config, text);
  const std::string command = "train " + config + " --output " + folder() + "/many --memory_limit_mib ";
  const Outcome outcome = run(command + "30");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  expect_has(outcome.err + outcome.out, "(16384 requested), which is all that fits into 30.00 MiB");
  expect_refused(command + "30 --grpo.engine.cache_tokens 16384", 4, "the configuration needs 16384");
  expect_refused(command + "13", 4, "0 tokens of cache would fit, and the longest request needs 48");
}

}  // namespace
}  // namespace temper
