// What one rank alone meets with, while the others go on: one error of all, and nothing saved is lost.
#include <cerrno>

#include "checkpoints/states/training_state.h"
#include "tests/cli/cli_fixture.h"
#include "tests/support/errors.h"

namespace temper {
namespace {

class OneRankFails : public Cli {
 protected:
  static std::string out(const std::string& name) { return folder() + "/" + name; }
  static std::string flags(const std::string& name, const std::string& more) {
    return "train " + yaml() + " --output " + out(name) + " --checkpoint.every_steps 1 " + more;
  }
  // The words before a rank whose call of this number fails, with an error of the disk.
  static std::string failing(const char* call, const std::string& file, int count) {
    return fmt::format("env LD_PRELOAD={} KILL_CALL={} KILL_FILE={} KILL_COUNT={} FAIL_WITH={}",
                       kill_library(), call, file, count, EIO);
  }
  static void expect_one_error(const Outcome& outcome, const std::string& what) {
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    expect_has(outcome.err, what);
    EXPECT_EQ(outcome.err.find("different calls"), std::string::npos) << outcome.err;
    EXPECT_EQ(outcome.err.find("temper: ["), outcome.err.rfind("temper: [")) << outcome.err;
  }
  static void expect_same_bits(const std::string& a, const std::string& b) {
    EXPECT_EQ(read_file(out(a) + "/model/model.safetensors"), read_file(out(b) + "/model/model.safetensors"));
    EXPECT_EQ(losses(out(a)), losses(out(b)));
  }
};

// Its numbers cannot be written in step 7. The checkpoint of step 6, which may be under way, is there.
TEST_F(OneRankFails, WritingNumbersEndsAllAndKeepsTheCheckpointUnderWay) {
  ASSERT_EQ(run(flags("whole", "--ranks 2")).code, 0);
  for (const bool async : {true, false})
    for (const std::string file : {"metrics.jsonl", "events.out"}) {
      const std::string name = fmt::format("{}_{}", file.substr(0, 6), async),
                        own = flags(name, async ? "--checkpoint.async true" : ""),
                        fails = failing("write", file, file == "metrics.jsonl" ? 7 : 6);
      const Outcome failed = run_each(own, {fails.c_str(), ""});
      expect_one_error(failed, file);
      const auto saved = checkpoints::open_newest(out(name) + "/checkpoints");
      ASSERT_TRUE(saved.has_value()) << failed.err;
      expect_has(failed.err, fmt::format("Step {} is saved in {}", saved->step(), out(name)));
      if (file == "metrics.jsonl") {
        EXPECT_EQ(saved->step(), 6) << "the one that was under way";
      }
      const Outcome resumed = run(own + " --ranks 2");
      EXPECT_EQ(resumed.code, 0) << resumed.err;
      expect_same_bits(name, "whole");
    }
}

// Also that of the last step, behind which no update comes.
TEST_F(OneRankFails, WritingAnEvaluationEndsAll) {
  const std::string more = "--data.eval_fraction 0.02 --eval.every_steps 3 ";
  for (const auto& [line, step] : {std::pair{4, 3}, {16, 12}}) {
    const std::string fails = failing("write", "metrics.jsonl", line),
                      name = fmt::format("evaluates{}", step);
    const Outcome failed = run_each(flags(name, more + "--checkpoint.async true"), {fails.c_str(), ""});
    expect_one_error(failed, "metrics.jsonl");
    expect_has(failed.err, fmt::format("Step {} is saved in ", step));
  }
}

// Of two adapters the one that a rank cannot read does not start on any rank; the other one is trained.
TEST_F(OneRankFails, ReadingAnAdapterLeavesItOutOnAllRanks) {
  const std::string one = "--adapters '[{name: a, rank: 2}]' ";
  ASSERT_EQ(run(flags("first", one + "--train.steps 2")).code, 0);
  const std::string two = fmt::format(
      "--adapters '[{{name: a, from: {}/adapters/a/adapter}}, {{name: b, rank: 2}}]' ", out("first"));
  // It is looked into before it is loaded.
  int left_out = 0;
  for (int count = 1; count <= 4; ++count) {
    const std::string name = "two" + std::to_string(count),
                      fails = failing("open", "adapter_model.safetensors", count);
    const Outcome failed = run_each(flags(name, two), {"", fails.c_str()});
    EXPECT_EQ(failed.err.find("different calls"), std::string::npos) << failed.err;
    if (failed.err.find("this adapter does not start, the others continue") == std::string::npos) continue;
    ++left_out;
    EXPECT_EQ(failed.code, 2) << failed.err;
    EXPECT_TRUE(exists(out(name) + "/adapters/b/adapter/adapter_model.safetensors"));
    EXPECT_FALSE(exists(out(name) + "/adapters/a/adapter"));
  }
  EXPECT_GT(left_out, 0);
}

}  // namespace
}  // namespace temper
