// checkpoint.async: checkpoints that are written in the background while training continues.
#include <algorithm>

#include "checkpoints/states/training_state.h"
#include "tests/cli/cli_fixture.h"
#include "tests/support/errors.h"

namespace temper {
namespace {

class AsyncStates : public Cli {
 protected:
  static std::string out(const std::string& name) { return folder() + "/" + name; }
  static Outcome train(const std::string& name, const std::string& flags, const std::string& before = "") {
    const TemporaryDirectory files;
    const std::string command = before + " " TEMPER_BINARY " train " + yaml() + " --output " + out(name) +
                                " " + flags + " >/dev/null 2>" + (files / "err");
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), "", read_file(files / "err")};
  }

  // Names and contents of all tensors on disk, by step; files are what their manifests say.
  static std::vector<std::vector<std::string>> states_of(const std::string& run_folder) {
    std::vector<std::vector<std::string>> all;
    for (const checkpoints::StateInfo& info : checkpoints::list_states(run_folder + "/checkpoints")) {
      const checkpoints::StateReader state = checkpoints::StateReader::open(info.path);
      std::vector<std::string>& files = all.emplace_back();
      for (const std::string& name : state.files())
        if (name.ends_with(".safetensors")) files.push_back(name + read_file(join_path(info.path, name)));
    }
    return all;
  }

  static void expect_same_run(const std::string& found, const std::string& expected, size_t states) {
    const auto found_states = states_of(found), expected_states = states_of(expected);
    EXPECT_EQ(found_states.size(), states);
    EXPECT_TRUE(found_states == expected_states) << "other bits than those of the step";
    for (size_t i = 1; i < found_states.size(); ++i)
      EXPECT_FALSE(found_states[i] == found_states[i - 1]) << "two steps of one state";
    EXPECT_EQ(losses(found), losses(expected));
  }
};

// What is written is the state of the step that asked, whatever the steps after it do.
TEST_F(AsyncStates, AreThoseOfRunsThatWait) {
  const std::string every = "--checkpoint.every_steps 1 --checkpoint.keep_last 100 ";
  for (const char* flags : {"", "--model.dtype bfloat16 --data.eval_fraction 0.02 --eval.every_steps 2 ",
                            "--ranks 2 --parallel.shard 2 --parallel.shard_level 3 "}) {
    const Outcome waits = train("waits", every + flags),
                  background = train("background", every + flags + "--checkpoint.async true");
    ASSERT_EQ(waits.code, 0) << waits.err;
    ASSERT_EQ(background.code, 0) << background.err;
    expect_same_run(out("background"), out("waits"), 12);
    EXPECT_EQ(read_file(out("background") + "/model/model.safetensors"),
              read_file(out("waits") + "/model/model.safetensors"));
    std::system(("rm -r " + out("waits") + " " + out("background")).c_str());
  }
  const std::string adapters = every + "--adapters '[{name: a, rank: 4}, {name: b, rank: 2, steps: 9}]' ";
  ASSERT_EQ(train("two_wait", adapters).code, 0);
  ASSERT_EQ(train("two_background", adapters + "--checkpoint.async true").code, 0);
  expect_same_run(out("two_background") + "/adapters/a", out("two_wait") + "/adapters/a", 12);
  expect_same_run(out("two_background") + "/adapters/b", out("two_wait") + "/adapters/b", 9);
}

// The file of step 5 is not begun before step 9 is done; then step 10 waits.
TEST_F(AsyncStates, LetUpdatesGoOn) {
  const std::string library = kill_library();
  const std::string slow = "LD_PRELOAD=" + library +
                           " KILL_CALL=write KILL_FILE=/.tmp-step-000005 WAIT_FILE=" + out("slow") +
                           "/metrics.jsonl WAIT_LINES=9";
  const Outcome outcome = train("slow", "--checkpoint.keep_last 9 --checkpoint.async true", slow);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(train("waiting", "--checkpoint.keep_last 9").code, 0);
  expect_same_run(out("slow"), out("waiting"), 3);
}

TEST_F(AsyncStates, OnAFullDiskEndTheRunWithOneError) {
  ASSERT_EQ(train("full", "--train.steps 5").code, 0);
  const Outcome full = train("full", "--checkpoint.async true", "trap '' XFSZ; ulimit -f 60;");
  EXPECT_EQ(full.code, 4) << full.err;
  expect_has(full.err, "optimizer.safetensors] cannot write: File too large; free some space");
  expect_has(full.err, "Step 5 is saved in " + out("full"));
  EXPECT_EQ(full.err.find("temper: ["), full.err.rfind("temper: [")) << full.err;
  EXPECT_EQ(list_directory(out("full") + "/checkpoints"), std::vector<std::string>{"step-000005"});
  ASSERT_EQ(train("full", "--checkpoint.async true").code, 0);
  EXPECT_EQ(losses(out("full")).size(), 12u);
}

// A signal and a bad row end a run when everything is on disk.
TEST_F(AsyncStates, AreCompleteWhenARunEnds) {
  const Outcome stopped =
      train("stopped", "--train.steps 100000 --checkpoint.every_steps 1 --checkpoint.async true",
            "timeout -s TERM 2");
  if (stopped.code == 3) {  // it had begun by then
    const size_t steps = losses(out("stopped")).size();
    expect_has(stopped.err, fmt::format("stopped by a signal after step {}; everything is saved", steps));
    EXPECT_EQ(checkpoints::open_newest(out("stopped") + "/checkpoints")->step(), static_cast<int64_t>(steps));
  }
  const Outcome outcome =
      train("wild", "--train.optimizer.lr 1e30 --checkpoint.every_steps 1 --checkpoint.async true");
  EXPECT_NE(outcome.code, 0);
  for (const checkpoints::StateInfo& state : checkpoints::list_states(out("wild") + "/checkpoints"))
    checkpoints::StateReader::open(state.path);
  if (!exists(out("wild") + "/checkpoints")) return;
  for (const std::string& name : list_directory(out("wild") + "/checkpoints"))
    EXPECT_TRUE(name.starts_with("step-")) << name;
}

}  // namespace
}  // namespace temper
