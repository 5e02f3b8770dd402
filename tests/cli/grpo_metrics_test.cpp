// What a run of recipe grpo tells of its phases and its loss.
#include "tests/cli/grpo_fixture.h"
#include "tests/support/gpu.h"

namespace temper {
namespace {

// Rollouts and updates tell their seconds, speed and memory apart.
TEST_F(GrpoCli, PhasesAreDistinguished) {
  const std::string keys = "  updates_per_rollout: 2\n  loss: dapo\n";
  // Of several threads the peak depends on which of them work at the same moment.
  const std::string flags = " --train.threads 1";
  const std::vector<Json> awake = metrics(trained(configuration("phases", keys), "phases", flags)),
                          asleep = metrics(
                              trained(configuration("phases_asleep",
                                                    keys + "  engine: {sleep: [optimizer, gradients]}\n"),
                                      "phases_asleep", flags));
  ASSERT_EQ(awake.size(), 6u);
  const double states =
      0.9 * static_cast<double>(
                read_file(folder() + "/phases/checkpoints/step-000006/optimizer.safetensors").size());
  for (size_t i = 0; i < awake.size(); ++i) {
    const Json& line = awake[i];
    const double seconds = number(line, "seconds"), update = number(line, "update_seconds");
    EXPECT_GT(update, 0) << i;
    EXPECT_NEAR(update * number(line, "update_tokens_per_second"),
                seconds * number(line, "tokens_per_second"), 1e-3);
    EXPECT_GT(number(line, "update_peak_memory_bytes"), 0) << i;
    ASSERT_EQ(line.find("rollout_seconds") != nullptr, i % 2 == 0) << i;
    if (i % 2 == 1) {
      EXPECT_EQ(update, seconds) << i;
      continue;
    }
    const double rollout = number(line, "rollout_seconds") + number(line, "reward_seconds") +
                           number(line, "scoring_seconds") + number(line, "sync_seconds");
    EXPECT_GT(number(asleep[i], "sync_seconds"), 0) << i;
    EXPECT_GT(rollout, 0);
    EXPECT_LT(update + rollout, seconds) << i;
    if (i == 0) continue;  // nothing can sleep before the first update
    // Moments and gradients are as large as the file, which has moments and parameters.
    EXPECT_GT(number(line, "rollout_peak_memory_bytes") - number(asleep[i], "rollout_peak_memory_bytes"),
              states);
    EXPECT_NE(number(line, "rollout_peak_memory_bytes"), number(line, "update_peak_memory_bytes"));
    EXPECT_EQ(number(asleep[i], "update_peak_memory_bytes"), number(line, "update_peak_memory_bytes"));
  }
}

// Where the host asks ahead of the device, too, a line has the seconds of its own rollout and of no other
// (saves would wait for the device).
TEST_F(GrpoCli, PhasesAreDistinguishedOnAGpu) {
  if (const std::string why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  const std::vector<Json> lines = metrics(trained(configuration("phases_gpu", "  updates_per_rollout: 2\n"),
                                                  "phases_gpu", " --device cuda --checkpoint.every_steps 0"));
  ASSERT_EQ(lines.size(), 6u);
  for (size_t i = 0; i < lines.size(); ++i) {
    const double seconds = number(lines[i], "seconds"), update = number(lines[i], "update_seconds");
    EXPECT_GT(update, 0) << i;
    if (i % 2 == 0) {
      EXPECT_LT(update + number(lines[i], "rollout_seconds"), seconds) << i;
    } else {
      EXPECT_EQ(update, seconds) << i;
    }
  }
}

// Ratios are 1 in the first update after a rollout: the loss is the same, and only its gradient has another
// part.
TEST_F(GrpoCli, TheKlMayBeUnbiased) {
  const std::string keys = "  updates_per_rollout: 2\n  kl: {beta: 5, ", flags = " --train.optimizer.lr 1e-2";
  std::vector<std::vector<Json>> runs;
  for (const char* more :
       {"estimator: k3}\n", "estimator: k3, unbiased: true}\n", "estimator: k1, unbiased: true}\n"})
    runs.push_back(metrics(
        trained(configuration("unbiased", keys + more), fmt::format("unbiased_{}", runs.size()), flags)));
  EXPECT_EQ(number(runs[0][0], "loss"), number(runs[1][0], "loss"));
  EXPECT_EQ(number(runs[0][0], "kl"), 0);
  EXPECT_EQ(number(runs[0][0], "grad_norm"), number(runs[1][0], "grad_norm"));  // of a KL of 0
  EXPECT_NE(number(runs[0][0], "grad_norm"), number(runs[2][0], "grad_norm"));  // k1 has a slope there
  EXPECT_NE(number(runs[0][1], "loss"), number(runs[1][1], "loss"));
}

// Fractions of the sampled tokens.
TEST_F(GrpoCli, WhatTheLossLimitsIsCounted) {
  const std::string keys = "  updates_per_rollout: 2\n  loss: dapo\n";
  const std::string flags = " --train.optimizer.lr 1e-2";
  const std::vector<Json> limited = metrics(
      trained(configuration("limited",
                            keys + "  policy: {dual_clip: 1.00001}\n  correction: {type: token, cap: 0.5}\n"),
              "limited", flags));
  double dual = 0;
  for (size_t i = 0; i < limited.size(); ++i) {
    EXPECT_EQ(number(limited[i], "corrected"), 1) << i;  // all weights are 1, and 0.5 is the most
    if (i % 2 == 0) {
      EXPECT_EQ(number(limited[i], "dual_clipped"), 0) << i;  // ratios are 1
    }
    EXPECT_LT(number(limited[i], "dual_clipped"), 1) << i;
    dual += number(limited[i], "dual_clipped");
  }
  EXPECT_GT(dual, 0);
  for (const Json& line : metrics(trained(configuration("unlimited", keys), "unlimited", flags))) {
    EXPECT_EQ(number(line, "corrected"), 0);
    EXPECT_EQ(number(line, "dual_clipped"), 0);
  }
}

}  // namespace
}  // namespace temper
