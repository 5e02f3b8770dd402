// States that several ranks write: what happens to one of them happens to all, and what was saved before
// stays.
#include "tests/cli/cli_fixture.h"
#include "tests/support/errors.h"

namespace temper {
namespace {

class RankStates : public Cli {
 protected:
  static std::string flags(const std::string& name) {
    return "train " + yaml() + " --output " + folder() + "/" + name + " --parallel.shard 2 ";
  }
  static std::string states_of(const std::string& name) { return folder() + "/" + name + "/checkpoints"; }

  static void expect_same_model(const std::string& a, const std::string& b) {
    EXPECT_EQ(read_file(folder() + "/" + a + "/model/model.safetensors"),
              read_file(folder() + "/" + b + "/model/model.safetensors"));
  }
};

TEST_F(RankStates, OfARankWhoseFileIsDamagedArePassedOver) {
  ASSERT_EQ(run(flags("whole") + "--ranks 2").code, 0);
  ASSERT_EQ(run(flags("damaged") + "--ranks 2").code, 0);
  const std::string file = states_of("damaged") + "/step-000012/optimizer-00001.safetensors";
  const std::string whole = read_file(file);
  for (const std::string damage : {"cut", "flipped", "missing"}) {
    std::string bytes = whole;
    if (damage == "cut") bytes.pop_back();
    if (damage == "flipped") bytes[bytes.size() / 2] ^= 1;
    damage == "missing" ? remove_all(file) : write_file(file, bytes);
    const Outcome resumed = run(flags("damaged") + "--ranks 2");
    EXPECT_EQ(resumed.code, 0) << resumed.err;
    expect_has(resumed.err, "step-000012/optimizer-00001.safetensors] found ");
    expect_has(resumed.err, "after step 10");
    expect_same_model("damaged", "whole");
    EXPECT_EQ(read_file(file), whole) << "written again";
  }
}

// Bash's limit is in units of 1,024 bytes; half of the state is larger.
TEST_F(RankStates, OneRankWithoutDiskEndsAll) {
  ASSERT_EQ(run(flags("full") + "--ranks 2 --train.steps 5").code, 0);
  const std::string manifest = read_file(states_of("full") + "/step-000005/manifest.json");
  const Outcome full =
      run_each(flags("full"), {"", "bash -c 'ulimit -f 64; trap \"\" XFSZ; exec \"$0\" \"$@\"'"});
  EXPECT_EQ(full.code, 4) << full.err;
  EXPECT_EQ(full.err.find("temper: rank 1: ["), full.err.find("temper: ")) << full.err;
  expect_has(full.err, "optimizer-00001.safetensors] cannot write: File too large; free some space");
  EXPECT_EQ(list_directory(states_of("full")), std::vector<std::string>{"step-000005"});
  EXPECT_EQ(read_file(states_of("full") + "/step-000005/manifest.json"), manifest);
  ASSERT_EQ(run(flags("full") + "--ranks 2").code, 0);
  EXPECT_EQ(losses(folder() + "/full").size(), 12u);
}

// A rank that is killed before its file is complete, and rank 0 before the state has its name.
TEST_F(RankStates, OfKilledRanksDoNotCount) {
  const std::string library = kill_library();
  ASSERT_EQ(run(flags("undisturbed") + "--ranks 2").code, 0);
  int number = 0;
  // Rank 1 writes one file, its part of the tensors; rank 0 that of its own, state.json and the manifest.
  for (const auto& [rank, call, count] : {std::tuple{1, "write", 2}, {0, "fsync", 3}, {0, "rename", 1}}) {
    const std::string name = "killed" + std::to_string(number++);
    const std::string kill = fmt::format(
        "env LD_PRELOAD={} KILL_CALL={} KILL_FILE=.tmp-step-000010 KILL_COUNT={}", library, call, count);
    const Outcome killed =
        rank == 0 ? run_each(flags(name), {kill.c_str(), ""}) : run_each(flags(name), {"", kill.c_str()});
    EXPECT_NE(killed.code, 0) << name;
    bool named = false;
    for (const std::string& state : list_directory(states_of(name))) named = named || state == "step-000010";
    EXPECT_FALSE(named) << name;
    const Outcome resumed = run(flags(name) + "--ranks 2");
    EXPECT_EQ(resumed.code, 0) << resumed.err;
    expect_has(resumed.err, "after step 5");
    expect_same_model(name, "undisturbed");
    for (const std::string& left : list_directory(states_of(name)))
      EXPECT_TRUE(left.starts_with("step-")) << left;
  }
}

}  // namespace
}  // namespace temper
