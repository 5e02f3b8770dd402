// Runs of recipe grpo that are asked to stop while answers are sampled or judged.
#include "base/clock.h"
#include "tests/cli/exchange_fixture.h"
#include "tests/cli/grpo_fixture.h"

namespace temper {
namespace {

class GrpoSignals : public GrpoCli {
 protected:
  static constexpr const char* kHeldOut = " --eval.every_steps 2 --data.eval [";
  static std::string flags() {
    return " --grpo.engine.batch 2 --checkpoint.every_steps 0" + (kHeldOut + folder()) + "/held.jsonl]";
  }
  static std::string config() { return configuration("signals", "  updates_per_rollout: 2\n"); }
  static const std::string& whole() {
    static const std::string out = trained(config(), "signals_whole", flags());
    return out;
  }
  // Gets SIGTERM at the so-many-th write into this file.
  static Outcome stopped(const std::string& out, const char* file, int count, const std::string& more = "") {
    return stopped(config(), out, file, count, flags() + more);
  }
  static Outcome stopped(const std::string& config, const std::string& out, const char* file, int count,
                         const std::string& flags) {
    const std::string err = folder() + "/signals.err";
    const std::string command = fmt::format(
        "LD_PRELOAD={} ASAN_OPTIONS=verify_asan_link_order=0 KILL_SIGNAL={} KILL_CALL=write KILL_FILE={} "
        "KILL_COUNT={} {} train {} --output {}{} >/dev/null 2>{}",
        kill_library(), SIGTERM, file, count, TEMPER_BINARY, config, out, flags, err);
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, "", read_file(err)};
  }
  static void expect_the_same_as_whole(const std::string& out) {
    ASSERT_EQ(run("train " + config() + " --output " + out + flags()).code, 0);
    EXPECT_EQ(losses(out), losses(whole()));
    EXPECT_EQ(evaluations(out), evaluations(whole()));
    for (const char* file : {"/model/model.safetensors", "/best/model.safetensors"})
      EXPECT_EQ(read_file(out + file), read_file(whole() + file)) << file;
  }
  static std::vector<double> evaluations(const std::string& out) {
    std::vector<double> all;
    for (const Json& line : metrics(out))
      if (line.find("eval_reward") != nullptr) all.push_back(number(line, "eval_reward"));
    return all;
  }
};

// A rollout of 16 answers, two at a time: few are there when it is stopped.
TEST_F(GrpoSignals, StopARolloutAtOnce) {
  if (!has_invariant_kernels()) GTEST_SKIP() << "this processor has no batch-invariant kernels";
  constexpr int kAnswers = 16;  // whose scores are lines, too
  for (const auto& [rollout, count] : {std::pair{0, 3}, {1, 5}}) {
    const int step = 2 * rollout;
    const std::string out = fmt::format("{}/signals_{}", folder(), step);
    const Outcome outcome = stopped(out, "rollouts.jsonl", 2 * kAnswers * rollout + count);
    EXPECT_EQ(outcome.code, 3) << outcome.err;
    expect_has(outcome.err,
               fmt::format("stopped by a signal in the rollout after step {}; everything is saved", step));
    int judged = 0;
    for (const Json& line : rollouts(out + "/rollouts.jsonl")) judged += line.find("text") != nullptr;
    EXPECT_GE(judged, kAnswers * rollout + count);
    EXPECT_LE(judged, kAnswers * rollout + count + 2);
    EXPECT_EQ(exists(out + "/checkpoints/step-000002"), rollout == 1) << "the trained weights are saved";
    expect_the_same_as_whole(out);
  }
}

TEST_F(GrpoSignals, AnEvaluationThatIsStoppedIsMadeLater) {
  if (!has_invariant_kernels()) GTEST_SKIP() << "this processor has no batch-invariant kernels";
  ASSERT_EQ(evaluations(whole()).size(), 3u);
  for (const int step : {2, 6}) {  // lines of steps, and of evaluations before
    const std::string out = fmt::format("{}/signals_evaluation_{}", folder(), step);
    const Outcome outcome = stopped(out, "metrics.jsonl", step + step / 2 - 1);
    EXPECT_EQ(outcome.code, 3) << outcome.err;
    expect_has(outcome.err, fmt::format("stopped by a signal in the evaluation after step {}", step));
    EXPECT_EQ(evaluations(out).size(), static_cast<size_t>(step / 2 - 1));
    expect_the_same_as_whole(out);
  }
}

// The first adapter has its answers then, and was not trained on them.
TEST_F(GrpoSignals, AnAdapterKeepsTheBatchThatWaitsForAnother) {
  if (!has_invariant_kernels()) GTEST_SKIP() << "this processor has no batch-invariant kernels";
  const std::string two =
      configuration("two", "", "adapters: [{name: a, rank: 2}, {name: b, rank: 2, seed: 7}]\n");
  const std::string flags = " --grpo.engine.batch 2 --train.steps 3",
                    whole = trained(two, "two_whole", flags), out = folder() + "/two_parts";
  const Outcome outcome = stopped(two, out, "adapters/b/rollouts.jsonl", 16 + 4, flags);
  EXPECT_EQ(outcome.code, 3) << outcome.err;
  expect_has(outcome.err, "in the rollout after step 1 of a, 1 of b");
  ASSERT_EQ(run("train " + two + " --output " + out + flags).code, 0);
  for (const char* file :
       {"/adapters/a/adapter/adapter_model.safetensors", "/adapters/b/adapter/adapter_model.safetensors"})
    EXPECT_EQ(read_file(out + file), read_file(whole + file)) << file;
}

// The first adapter's evaluation was made, and is not made again; that of the second is, also after a process
// that was killed behind it.
TEST_F(GrpoSignals, EachAdapterIsEvaluatedOnce) {
  if (!has_invariant_kernels()) GTEST_SKIP() << "this processor has no batch-invariant kernels";
  const std::string two = configuration("two_judged", "",
                                        "adapters: [{name: a, rank: 2}, {name: b, rank: 2, seed: 7}]\n"),
                    flags = " --train.steps 3" + (kHeldOut + folder()) + "/held.jsonl]",
                    whole = trained(two, "two_judged", flags), out = folder() + "/two_stopped";
  const Outcome outcome = stopped(two, out, "adapters/a/metrics.jsonl", 3, flags);
  EXPECT_EQ(outcome.code, 3) << outcome.err;
  expect_has(outcome.err, "in the evaluation after step 2 of a, 2 of b");
  const std::string killed = fmt::format(
      "LD_PRELOAD={} ASAN_OPTIONS=verify_asan_link_order=0 KILL_CALL=write "
      "KILL_FILE=adapters/b/metrics.jsonl "
      "KILL_AFTER=1 {} train {} --output {}{} 2>/dev/null",
      kill_library(), TEMPER_BINARY, two, out, flags);
  ASSERT_NE(std::system(killed.c_str()), 0);
  EXPECT_EQ(evaluations(out + "/adapters/b").size(), 1u);
  const Outcome resumed = run("train " + two + " --output " + out + flags);
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  expect_has(resumed.err, "[b] step 2: reward");
  EXPECT_EQ(resumed.err.find("[a] step 2: reward"), std::string::npos) << resumed.err;
  for (const char* adapter : {"/adapters/a", "/adapters/b"}) {
    EXPECT_EQ(losses(out + adapter), losses(whole + adapter));
    EXPECT_EQ(evaluations(out + adapter), evaluations(whole + adapter));
    expect_has(read_file(out + adapter + "/summary.json"), "\"prompts\": 12");  // of the whole run
  }
}

TEST_F(GrpoSignals, RanksStopTogether) {
  const std::string out = folder() + "/signals_ranks";
  const Outcome outcome = stopped(out, "rollouts.jsonl", 5, " --ranks 2 --parallel.tensor 2");
  EXPECT_EQ(outcome.code, 3) << outcome.err;
  expect_has(outcome.err, "stopped by a signal in the rollout after step 0");
  EXPECT_LT(rollouts(out + "/rollouts.jsonl").size(), 16u);
}

// Of a program that takes an hour.
TEST_F(GrpoSignals, NobodyWaitsForARewardThen) {
  write_file(folder() + "/slow.py", "import sys, time\nsys.stdin.readline()\nopen('" + folder() +
                                        "/asked', 'w').close()\ntime.sleep(3600)\n");
  BackgroundProgram training(
      "train " +
          configuration("slow", "  rewards: [{type: program, timeout: 3600, command: [python3, " + folder() +
                                    "/slow.py]}]\n") +
          " --output " + folder() + "/slow",
      folder() + "/slow.log");
  while (!exists(folder() + "/asked") && training.runs()) wait_a_moment();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // all is sampled by then
  const double begun = seconds_now();
  EXPECT_EQ(training.end(SIGTERM), 3) << training.log();
  EXPECT_LT(seconds_now() - begun, 60);
  expect_has(training.log(), "stopped by a signal in the rollout after step 0");
}

}  // namespace
}  // namespace temper
