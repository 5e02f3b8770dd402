#include <sys/wait.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/clock.h"
#include "base/files.h"
#include "rewards/test_support.h"

namespace temper::rewards {
namespace {

// What the program does is the text that it is to judge.
constexpr const char* kScript = R"(
import json, os, sys, time
def say(text):
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
kept = None
for line in sys.stdin:
    asked = json.loads(line)
    number, text = asked["id"], asked["text"]
    if text == "crash":
        print("line 1\nabout to crash", file=sys.stderr, flush=True)
        os._exit(3)
    elif text == "kill":
        os.kill(os.getpid(), 9)
    elif text == "hang":
        time.sleep(1000)
    elif text == "rubbish":
        say("debug: here")
    elif text == "stranger":
        say(json.dumps({"id": number + 1000, "reward": 1}))
    elif text == "nan":
        say(json.dumps({"id": number, "reward": float("nan")}))
    elif text == "close":
        os.close(1)
        time.sleep(1000)
    elif text == "deaf":
        os.close(0)
        time.sleep(1000)
    elif text == "half":
        sys.stdout.write('{"id": %d, "rew' % number)
        sys.stdout.flush()
        os._exit(0)
    elif text == "sleep":
        time.sleep(0.05)
        say(json.dumps({"id": number, "reward": os.getpid()}))
    elif text == "pid":
        say(json.dumps({"id": number, "reward": os.getpid()}))
    elif text == "words":
        say(json.dumps({"id": number, "reward": "good"}))
    elif text == "keep":
        kept = number
    elif text == "error":
        say(json.dumps({"id": number, "error": "cannot judge this"}))
    elif text == "next":
        say(json.dumps({"id": number, "reward": 2, "messages": asked["messages"] + [{"role": "user", "content": "on"}]}))
    elif text == "exit":
        say(json.dumps({"id": number, "reward": 1}))
        os._exit(0)
    elif text.startswith("size"):
        say(json.dumps({"id": number, "reward": len(text), "padding": text}))
    else:
        say(json.dumps({"id": number, "reward": asked["row"]["value"]}))
        if kept is not None:
            say(json.dumps({"id": kept, "reward": 3}))
)";

class ProgramReward : public testing::Test {
 protected:
  ProgramReward() {
    write_file(folder_ / "judge.py", kScript);
    config_ = {.type = "program", .judge = {.command = {"python3", folder_ / "judge.py"}}};
  }

  // Verdicts of answers that are submitted at once.
  std::map<int64_t, Verdict> judge(Reward& reward, const std::vector<std::string>& texts) {
    for (size_t i = 0; i < texts.size(); ++i)
      reward.submit(static_cast<int64_t>(i),
                    {.place = fmt::format("rows.jsonl:{}", i), .row = &row_, .text = texts[i]});
    std::map<int64_t, Verdict> verdicts;
    for (auto taken = reward.take(kForEver); !taken.empty(); taken = reward.take(kForEver))
      for (auto& [id, verdict] : taken) EXPECT_TRUE(verdicts.emplace(id, std::move(verdict)).second);
    EXPECT_EQ(verdicts.size(), texts.size());
    return verdicts;
  }
  std::map<int64_t, Verdict> judge(const std::vector<std::string>& texts) {
    return judge(*make_reward(config_, kKey), texts);
  }
  std::string name() const { return "program 'python3 " + (folder_ / "judge.py") + "'"; }

  TemporaryDirectory folder_;
  Json row_ = Json::parse(R"({"value": 0.25})", "row");
  RewardConfig config_;
};

TEST_F(ProgramReward, Judges) {
  const auto verdicts = judge({"a", "error", "b"});
  EXPECT_EQ(verdicts.at(0).reward, 0.25);
  EXPECT_EQ(verdicts.at(1).error, "cannot judge this");
  EXPECT_EQ(verdicts.at(2).reward, 0.25);
}

TEST_F(ProgramReward, NothingIsAwaited) {
  const auto reward = make_reward(config_, kKey);
  EXPECT_TRUE(reward->take(kForEver).empty());
  EXPECT_TRUE(reward->take(0).empty());
}

TEST_F(ProgramReward, IsWaitedForNoLongerThanAsked) {
  const auto reward = make_reward(config_, kKey);
  reward->submit(5, {.place = "", .row = &row_, .text = "hang"});
  const double begun = seconds_now();
  EXPECT_TRUE(reward->take(0.1).empty());
  EXPECT_GE(seconds_now() - begun, 0.1);
}

TEST_F(ProgramReward, AnEnvironmentContinues) {
  const auto reward = make_reward(config_, kKey);
  reward->submit(5, {.place = "",
                     .row = &row_,
                     .text = "next",
                     .messages = Json::parse(R"([{"role": "assistant", "content": "next"}])", "")});
  const auto verdicts = reward->take(kForEver);
  ASSERT_EQ(verdicts.size(), 1u);
  EXPECT_EQ(verdicts[0].second.reward, 2);
  EXPECT_EQ(verdicts[0].second.next.dump(),
            R"([{"role": "assistant", "content": "next"}, {"role": "user", "content": "on"}])");
}

TEST_F(ProgramReward, AShellRunsOneText) {
  config_.judge.command = {"A='{\"id\": 0, '; read line; echo \"$A\\\"reward\\\": 3}\"; cat >/dev/null"};
  EXPECT_EQ(judge({"a"}).at(0).reward, 3);
}

TEST_F(ProgramReward, ADeathIsOfOneAnswer) {
  const auto error_of_text = [&](const std::string& text) {
    const auto verdicts = judge({"a", text, "b"});
    EXPECT_EQ(verdicts.at(0).error, "");
    EXPECT_EQ(verdicts.at(0).reward, 0.25);
    EXPECT_EQ(verdicts.at(2).error, "");
    EXPECT_EQ(verdicts.at(2).reward, 0.25);
    return verdicts.at(1).error;
  };
  const std::string silent = ", and wrote nothing to its standard error";
  EXPECT_EQ(
      error_of_text("crash"),
      name() + " ended with exit code 3; its last lines on standard error:\n  line 1\n  about to crash");
  EXPECT_EQ(error_of_text("kill"), name() + " was ended by signal 9 (Killed)" + silent);
  EXPECT_EQ(error_of_text("half"), name() + " ended with exit code 0" + silent);
  EXPECT_EQ(error_of_text("close"), name() + " closed its standard output" + silent);
  EXPECT_EQ(error_of_text("stranger"),
            name() + " answered id 1001, which it has not been asked about" + silent);
  expect_has(
      error_of_text("rubbish"),
      name() +
          " wrote to its standard output a line that is not an answer: 'debug: here' is not a JSON object (");
  EXPECT_EQ(error_of_text("nan"), "the reward is not a finite number");
}

TEST_F(ProgramReward, ATimeoutIsOfOneAnswer) {
  config_.judge.timeout = 3;
  const auto verdicts = judge({"a", "hang", "b", "deaf", "c"});
  EXPECT_EQ(verdicts.at(1).error,
            name() + " gave no answer within 3 seconds, and wrote nothing to its standard error");
  EXPECT_NE(verdicts.at(3).error, "");
  for (const int64_t id : {0, 2, 4}) EXPECT_EQ(verdicts.at(id).reward, 0.25);
}

// Writing to it raises SIGPIPE.
TEST_F(ProgramReward, ThatDoesNotRead) {
  config_.judge.command = {"exec 0<&-; sleep 1000"};
  EXPECT_EQ(
      judge({std::string(500'000, 'x')}).at(0).error,
      "program 'exec 0<&-; sleep 1000' closed its standard input, and wrote nothing to its standard error");
}

TEST_F(ProgramReward, SeveralAnswersAtOnce) {
  config_.judge.parallel = 4;
  const auto verdicts = judge({"a", "crash", "b", "c", "rubbish", "d", "e", "f", "g"});
  for (const auto& [id, verdict] : verdicts) EXPECT_EQ(verdict.error.empty(), id != 1 && id != 4) << id;
}

TEST_F(ProgramReward, ABadAnswerIsOfTheAnswerWithItsId) {
  config_.judge.parallel = 2;
  const auto verdicts = judge({"keep", "words", "a"});
  EXPECT_EQ(verdicts.at(0).reward, 3);
  expect_has(verdicts.at(1).error, "wrote to its standard output a line that is not an answer");
  EXPECT_EQ(verdicts.at(2).reward, 0.25);
}

TEST_F(ProgramReward, ProcessesShareTheWork) {
  config_.judge.processes = 3;
  const std::vector<std::string> texts(30, "sleep");
  std::set<double> processes;
  for (const auto& [id, verdict] : judge(texts)) processes.insert(verdict.reward);
  EXPECT_EQ(processes.size(), 3u);
}

TEST_F(ProgramReward, OneProcessLives) {
  const auto reward = make_reward(config_, kKey);
  const auto first = judge(*reward, {"pid"}), second = judge(*reward, {"pid"});
  EXPECT_EQ(first.at(0).reward, second.at(0).reward);
}

// A program that ends after each answer is started again each time.
TEST_F(ProgramReward, EndsBetweenAnswers) {
  const auto reward = make_reward(config_, kKey);
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(judge(*reward, {"exit"}).at(0).reward, 1);
    // Given at the very moment of the end it would be at fault for it.
    ::usleep(100'000);
  }
}

TEST_F(ProgramReward, LongTextsDoNotBlock) {
  config_.judge.parallel = 8;
  const std::vector<std::string> texts(20, "size" + std::string(500'000, 'x'));
  for (const auto& [id, verdict] : judge(texts)) EXPECT_EQ(verdict.reward, 500'004);
}

TEST_F(ProgramReward, ThreeDeathsInARowEndIt) {
  const auto reward = make_reward(config_, kKey);
  for (int64_t i = 0; i < 4; ++i)
    reward->submit(i, {.place = fmt::format("rows.jsonl:{}", i), .row = &row_, .text = "crash"});
  size_t verdicts = 0;
  const std::string error = error_of([&] {
    for (;;) verdicts += reward->take(kForEver).size();
  });
  EXPECT_EQ(verdicts, 2u);
  EXPECT_EQ(error,
            "[grpo.rewards[0].command] a process died 3 times in a row without an answer, the last time "
            "at rows.jsonl:2: " +
                name() +
                " ended with exit code 3; its last lines on standard error:\n  line 1\n  about to crash");
  EXPECT_EQ(error_of([&] { reward->submit(9, {.place = "", .row = &row_, .text = "a"}); }), error);
}

size_t open_files() { return list_directory("/proc/self/fd").size(); }

TEST_F(ProgramReward, FiftyCrashesLeaveNothingBehind) {
  const size_t before = open_files();
  {
    const auto reward = make_reward(config_, kKey);
    std::vector<std::string> texts;
    for (int i = 0; i < 25; ++i) texts.insert(texts.end(), {"crash", "a", "rubbish", "b"});
    judge(*reward, texts);
    // The process that lives, and what wakes the thread.
    EXPECT_LE(open_files(), before + 4);
  }
  EXPECT_EQ(open_files(), before);
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "a process is left";
}

TEST_F(ProgramReward, IsEndedInTheMiddleOfItsWork) {
  const size_t before = open_files();
  const double start = seconds_now();
  {
    const auto reward = make_reward(config_, kKey);
    for (int64_t i = 0; i < 5; ++i) reward->submit(i, {.place = "", .row = &row_, .text = "hang"});
    ::usleep(300'000);
  }
  EXPECT_LT(seconds_now() - start, 10);
  EXPECT_EQ(open_files(), before);
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "a process is left";
}

TEST_F(ProgramReward, TheExample) {
  config_.judge.command = {"python3", TEMPER_SOURCE_DIR "/examples/grpo/reward.py"};
  row_ = Json::parse(R"({"answer": "so it is 1,200"})", "row");
  const auto verdicts =
      judge({"\\boxed{1200}", "\\boxed{\\text{1200 or}} 1200", "1200", "12", "no", "\\boxed{3/0}"});
  const std::vector<double> expected{1, 1, 1, 0, 0, 0.1};
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_EQ(verdicts.at(static_cast<int64_t>(i)).reward, expected[i]) << i;
  row_ = Json::parse(R"({"question": "?"})", "row");
  EXPECT_EQ(judge({"5"}).at(0).error, "the row's field 'answer' has no number");
}

TEST_F(ProgramReward, Configuration) {
  EXPECT_EQ(config_error({.type = "program"}),
            "[grpo.rewards[0].command] is missing; write for example python3 reward.py");
  EXPECT_EQ(
      config_error({.type = "program", .judge = {.command = {"no_such_program", "a"}}}),
      "[grpo.rewards[0].command] 'no_such_program' is not a program that can be run: no such file in PATH");
  EXPECT_EQ(
      config_error({.type = "program", .judge = {.command = {"./no_such_program", "a"}}}),
      "[grpo.rewards[0].command] './no_such_program' is not a program that can be run: no such file, or "
      "without the right to run it");
}

}  // namespace
}  // namespace temper::rewards
