// Signals at any moment of a run: exit code 3, everything saved, no process left.
#include <csignal>

#include "checkpoints/states/training_state.h"
#include "tests/cli/cli_fixture.h"
#include "tests/support/errors.h"

namespace temper {
namespace {

class Signals : public Cli {
 protected:
  static std::string out(const std::string& name) { return folder() + "/" + name; }

  // What a script says that may use $TEMPER, $RUN (its arguments), $LONG and $OUT.
  static Outcome script(const std::string& name, const std::string& text) {
    const TemporaryDirectory files;
    const std::string command = fmt::format(
        "export TEMPER={} OUT={} RUN='train {} --output {}'; LONG='--train.steps 100000'\n"
        "wait_for_step() {{ for i in $(seq 600); do [ -s $OUT/metrics.jsonl ] && return; sleep 0.03; done; "
        "}}\n"
        "wait_for_main() {{ for i in $(seq 3000); do\n"
        "(( 0x$(sed -n 's/SigCgt:\t//p' /proc/$!/status) & 0x4000 )) && return; sleep 0.002; done; }}\n"
        "{{ {}\n}} >{} 2>{}",
        TEMPER_BINARY, out(name), yaml(), out(name), text, files / "out", files / "err");
    write_file(files / "script", command);
    const int status = std::system(("bash " + (files / "script")).c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read_file(files / "out"),
            read_file(files / "err")};
  }

  static void expect_saved(const Outcome& outcome, const std::string& name) {
    EXPECT_EQ(outcome.code, 3) << outcome.err;
    expect_has(outcome.err,
               fmt::format("everything is saved in {}: run the same command to resume", out(name)));
    const auto saved = checkpoints::open_newest(out(name) + "/checkpoints");
    ASSERT_TRUE(saved.has_value());
    EXPECT_EQ(static_cast<size_t>(saved->step()), losses(out(name)).size());
  }

  static void expect_nobody_left(const std::string& name) {
    EXPECT_NE(std::system(("pgrep -f '[o]utput " + out(name) + "( |$)' >/dev/null").c_str()), 0)
        << "a process is left";
  }
};

// While the model is read.
TEST_F(Signals, EndARunThatHasNothingToSave) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) {
    const Outcome outcome = script(
        "early", fmt::format("env LD_PRELOAD={} KILL_CALL=open KILL_FILE=model.safetensors KILL_SIGNAL={} "
                             "$TEMPER $RUN $LONG",
                             kill_library(), signal));
    EXPECT_EQ(outcome.code, 3) << outcome.err;
    expect_has(outcome.err, "temper: stopped by a signal; run the same command again");
  }
}

// The first one stops the run, and all others have no effect: those that come while it saves and says so,
// too.
TEST_F(Signals, InAStormSaveEverything) {
  int number = 0;
  for (const std::string ranks : {"", " --ranks 2"})
    for (const char* const signals : {"TERM", "INT HUP TERM USR1"}) {
      const std::string name = "storm" + std::to_string(number++);
      const Outcome outcome = script(name, "$TEMPER $RUN $LONG" + ranks +
                                               " &\nwait_for_step\n"
                                               "while true; do for s in " +
                                               signals +
                                               "; do kill -$s $! || break 2; sleep 0.005; done; done\n"
                                               "wait $!");
      expect_saved(outcome, name);
      expect_has(outcome.err, "a signal: stopping after this step, and saving");
      expect_nobody_left(name);
    }
}

// From the first line of the program on.
TEST_F(Signals, WhileRanksStartEndAllOfThem) {
  for (const char* const wait : {"0", "0.02", "0.15", "0.3", "0.5", "0.8"}) {
    const Outcome outcome = script(
        "starts",
        fmt::format("$TEMPER $RUN $LONG --ranks 2 &\nwait_for_main\nsleep {}\nkill -TERM $!\nwait $!", wait));
    EXPECT_EQ(outcome.code, 3) << wait << outcome.err;
    expect_nobody_left("starts");
  }
}

TEST_F(Signals, OfAClosedTerminalSaveEverything) {
  const Outcome outcome = script("hangup", "$TEMPER $RUN $LONG &\nwait_for_step\nkill -HUP $!\nwait $!");
  expect_saved(outcome, "hangup");
  const Outcome nohup =
      script("nohup", "nohup $TEMPER $RUN --train.steps 40 &\nwait_for_step\nkill -HUP $!\nwait $!");
  EXPECT_EQ(nohup.code, 0) << nohup.err;
}

TEST_F(Signals, ARunOutlivesItsReader) {
  for (const char* const ranks : {"", " --ranks 2"}) {
    const Outcome outcome =
        script(fmt::format("read{}", std::string(ranks).size()),
               fmt::format("$TEMPER $RUN --train.steps 30 {} 2>&1 | true\nexit ${{PIPESTATUS[0]}}", ranks));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
  }
}

// MPI's own launcher may wait forever for a rank that is killed while ranks look for each other.
TEST_F(Signals, ARankThatIsKilledEndsAllAndWhatIsSavedIsReported) {
  ASSERT_EQ(script("killed", "$TEMPER $RUN --ranks 2 --train.steps 5").code, 0);
  for (const char* const file : {"vader_segment", "metrics.jsonl"}) {
    const bool starts = std::string(file) == "vader_segment";
    const Outcome outcome = script(
        "killed",
        fmt::format("env LD_PRELOAD={} KILL_CALL={} KILL_FILE={} KILL_RANK={} $TEMPER $RUN $LONG --ranks 2",
                    kill_library(), starts ? "open" : "write", file, starts ? 1 : 0));
    EXPECT_EQ(outcome.code, 4) << outcome.err;
    expect_has(outcome.err, fmt::format("Step 5 is saved in {}", out("killed")));
    expect_nobody_left("killed");
  }
}

}  // namespace
}  // namespace temper
