// A run that is killed in the middle of a step or of a checkpoint, and resumed.
#include <algorithm>

#include "tests/cli/cli_fixture.h"

namespace temper {
namespace {

struct KillPoint {
  const char* name;
  const char *call, *file;  // see kill_at.c
  int count;
  bool after;
  int64_t saved;  // the newest complete state then; 0: none
  size_t steps;   // the least number of steps done by then, which were not all
  bool async = false;
};

void PrintTo(const KillPoint& point, std::ostream* out) { *out << point.name; }

class Killed : public Cli, public testing::WithParamInterface<KillPoint> {
 protected:
  static int64_t newest_state(const std::string& out) {
    int64_t newest = 0;
    const std::string folder = out + "/checkpoints";
    if (!exists(folder)) return newest;
    for (const std::string& name : list_directory(folder))
      if (name.starts_with("step-")) newest = std::max<int64_t>(newest, std::stol(name.substr(5)));
    return newest;
  }
};

TEST_P(Killed, ContinuesFromItsCheckpointBitForBit) {
  const KillPoint& point = GetParam();
  const std::string whole = folder() + "/whole", out = folder() + "/" + point.name, library = kill_library();
  if (!exists(whole)) {
    ASSERT_EQ(run("train " + yaml() + " --output " + whole).code, 0);
  }
  const pid_t child = ::fork();
  if (child == 0) {
    ::setenv("LD_PRELOAD", library.c_str(), 1);
    // A sanitizer's library, where there is one, is not the first then.
    const char* options = std::getenv("ASAN_OPTIONS");
    ::setenv("ASAN_OPTIONS",
             (std::string(options == nullptr ? "" : options) + ":verify_asan_link_order=0").c_str(), 1);
    ::setenv("KILL_CALL", point.call, 1);
    ::setenv("KILL_FILE", point.file, 1);
    ::setenv("KILL_COUNT", std::to_string(point.count).c_str(), 1);
    if (point.after) ::setenv("KILL_AFTER", "1", 1);
    ::freopen("/dev/null", "a", stderr);
    ::execl(TEMPER_BINARY, "temper", "train", yaml().c_str(), "--output", out.c_str(), "--checkpoint.async",
            point.async ? "true" : "false", static_cast<char*>(nullptr));
    ::_exit(127);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  // It was killed, there and then: it did not come to its end.
  ASSERT_TRUE(WIFSIGNALED(status)) << "it ended with " << WEXITSTATUS(status);
  ASSERT_EQ(WTERMSIG(status), SIGKILL);
  EXPECT_FALSE(exists(out + "/summary.json"));
  EXPECT_FALSE(exists(out + "/model/model.safetensors"));
  EXPECT_EQ(newest_state(out), point.saved);
  EXPECT_GE(losses(out).size(), point.steps);

  const Outcome resumed = run("train " + yaml() + " --output " + out);
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  if (point.saved > 0) {
    EXPECT_NE(resumed.err.find("after step " + std::to_string(point.saved)), std::string::npos)
        << resumed.err;
  }
  EXPECT_EQ(losses(out), losses(whole));
  EXPECT_EQ(read_file(out + "/model/model.safetensors"), read_file(whole + "/model/model.safetensors"));
  for (const std::string& place : {out, out + "/checkpoints"})
    for (const std::string& name : list_directory(place))
      EXPECT_EQ(name.find(".tmp"), std::string::npos) << place << "/" << name;
}

// Behind the last checkpoint, before those that it replaces are removed.
using KilledAtItsEnd = Cli;

TEST_F(KilledAtItsEnd, AFinishedRunKeepsAsManyCheckpointsAsItSays) {
  const std::string out = folder() + "/finished";
  ASSERT_NE(std::system(fmt::format("LD_PRELOAD={} ASAN_OPTIONS=verify_asan_link_order=0 KILL_CALL=rename "
                                    "KILL_FILE=checkpoints/step-000005 {} train {} --output {} 2>/dev/null",
                                    kill_library(), TEMPER_BINARY, yaml(), out)
                            .c_str()),
            0);
  EXPECT_EQ(list_directory(out + "/checkpoints").size(), 3u);
  ASSERT_EQ(run("train " + yaml() + " --output " + out).code, 0);
  EXPECT_EQ(list_directory(out + "/checkpoints"), (std::vector<std::string>{"step-000010", "step-000012"}));
}

INSTANTIATE_TEST_SUITE_P(
    Points, Killed,
    testing::Values(KillPoint{"before_the_first_checkpoint", "write", "/metrics.jsonl", 4, false, 0, 2},
                    KillPoint{"between_checkpoints", "write", "/metrics.jsonl", 8, true, 5, 6},
                    KillPoint{"while_a_state_is_written", "fsync", "/.tmp-step-000010", 1, false, 5, 9},
                    KillPoint{"before_a_state_gets_its_name", "rename", "/.tmp-step-000005", 1, false, 0, 4},
                    KillPoint{"when_a_state_got_its_name", "rename", "/.tmp-step-000010", 1, true, 10, 9},
                    KillPoint{"beside_updates", "fsync", "/.tmp-step-000010", 1, false, 5, 9, true},
                    KillPoint{"before_it_gets_its_name_beside_updates", "rename", "/.tmp-step-000005", 1,
                              false, 0, 5, true},
                    KillPoint{"while_the_result_is_written", "fsync", "/.tmp-model", 1, false, 12, 12}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace temper
