// Keys of single adapters: on the command line, and in what is said of them.
#include "tests/cli/cli_fixture.h"

namespace temper {
namespace {

class AdapterKeys : public Cli {
 protected:
  static std::string with_adapters(const std::string& name, const std::string& list) {
    const std::string path = folder() + "/" + name + ".yaml";
    write_file(path, read_file(yaml()) + "adapters:\n" + list);
    return path;
  }
  static int64_t rank_of(const std::string& out, const std::string& name) {
    return Json::parse_file(out + "/adapters/" + name + "/adapter/adapter_config.json").at("r").as_int();
  }
};

TEST_F(AdapterKeys, FlagsSetThoseOfOneAdapter) {
  const std::string out = folder() + "/flags",
                    config = with_adapters("flags", "  - {name: a, rank: 2}\n  - {name: b, rank: 2}\n");
  const Outcome outcome = run("train " + config + " --train.steps 1 --output " + out +
                              " '--adapters[0].rank' 3 '--adapters[b].rank' 5");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(rank_of(out, "a"), 3);
  EXPECT_EQ(rank_of(out, "b"), 5);
  expect_refused("train " + config + " --output " + out + "2 '--adapters[2].rank' 3", 2, "adapters[2]");
  EXPECT_FALSE(exists(out + "2"));
}

// What adapters share is not one adapter's mistake.
TEST_F(AdapterKeys, MissingDataAreOfTheKeyThatNamesThem) {
  const std::string run = "train " + yaml() + " --output " + folder() + "/nowhere --adapters ",
                    missing = folder() + "/nothing_here.jsonl";
  expect_refused(run + "'[{name: polite}]' --data.train " + missing, 2, "temper: [" + missing + "] no such");
  expect_refused(run + "'[{name: polite, train: " + missing + "}]'", 2,
                 "temper: [adapters.polite] [" + missing + "] no such file");
}

TEST_F(AdapterKeys, EpochsBesideStepsHaveNoEffect) {
  const auto said = [](const std::string& name, const std::string& list, const std::string& flags = "") {
    const Outcome outcome = run("train " + with_adapters(name, list) + " --dry-run" + flags);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.err;
  };
  const std::string own = said("own", "  - {name: law, rank: 2, steps: 3, epochs: 2}\n"),
                    warning = "is 2, and has no effect: steps is ";
  EXPECT_NE(own.find("warning: [adapters.law.epochs] " + warning + "3; leave one of them out\n"),
            std::string::npos)
      << own;
  const std::string of_run = said("of_run", "  - {name: law, rank: 2}\n", " --train.epochs 2");
  EXPECT_NE(of_run.find("warning: [train.epochs] " + warning + "12; leave one of them out\n"),
            std::string::npos)
      << of_run;
  // Either of its own replaces both of the run's.
  const std::string replaced = said("replaced", "  - {name: law, rank: 2, steps: 3}\n", " --train.epochs 2");
  EXPECT_EQ(replaced.find("has no effect"), std::string::npos) << replaced;
}

}  // namespace
}  // namespace temper
