#include "config/load.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/error.h"
#include "base/files.h"
#include "config/config_fixture.h"
#include "tests/support/errors.h"

namespace temper::config {
namespace {

using namespace fixture;
using Flags = std::vector<std::string>;

RunConfig loaded(std::string_view yaml, const Flags& flags = {}) {
  RunConfig run;
  Schema schema = schema_of(run);
  load_text(schema, yaml, "run.yaml", flags);
  return run;
}

std::string load_error(std::string_view yaml, const Flags& flags = {}) {
  const std::string message = error_of([&] { loaded(yaml, flags); });
  return message.empty() ? "no error" : message;
}

TEST(Load, SetsEveryType) {
  const RunConfig run = loaded(R"(
name: "0123"
note: hello there
buckets: [1, 1e3, 20]
switches: [true, false]
precision: 32
train:
  steps: 1e6
  compile: true
  mode: grpo
  fallback: sft
  metrics: [reward, loss]
  optimizer: {lr: 2e-5, betas: [.5, 0.75], clip: 1, warmup: 0}
sources:
  - path: a.jsonl
    weight: 2
    columns: [prompt, "response"]
  - b.jsonl
)");
  EXPECT_EQ(run.name, "0123");
  EXPECT_EQ(run.note, "hello there");
  EXPECT_EQ(run.buckets, (std::vector<int64_t>{1, 1000, 20}));
  EXPECT_EQ(run.switches, (std::vector<bool>{true, false}));
  EXPECT_EQ(run.precision, 32);
  EXPECT_EQ(run.train.steps, 1000000);
  EXPECT_TRUE(run.train.compile);
  EXPECT_EQ(run.train.mode, Mode::kGrpo);
  EXPECT_EQ(run.train.fallback, Mode::kSft);
  EXPECT_EQ(run.train.metrics, (std::vector<Metric>{Metric::kReward, Metric::kLoss}));
  EXPECT_EQ(run.train.optimizer.lr, 2e-5);
  EXPECT_EQ(run.train.optimizer.betas, (std::array<double, 2>{0.5, 0.75}));
  EXPECT_EQ(run.train.optimizer.clip, 1.0);
  EXPECT_EQ(run.train.optimizer.warmup, 0);
  ASSERT_EQ(run.sources.size(), 2u);
  EXPECT_EQ(run.sources[0], (Source{"a.jsonl", 2, {"prompt", "response"}}));
  EXPECT_EQ(run.sources[1], (Source{"b.jsonl", 1, {}}));
}

TEST(Load, EmptyFilesAndGroupsKeepDefaults) {
  for (const char* yaml :
       {"", "\n\n", "# nothing\n", "---\n", "{}", "train:\n  # lr: 1\n", "train: {optimizer: }"})
    EXPECT_EQ(loaded(yaml), RunConfig()) << yaml;
}

TEST(Load, NullClearsOptionalsOnly) {
  EXPECT_EQ(loaded("note: x", {"--note", "null"}).note, std::nullopt);
  EXPECT_EQ(loaded("train: {optimizer: {clip: ~}}").train.optimizer.clip, std::nullopt);
  EXPECT_EQ(loaded("note: 'null'").note, "null");
  EXPECT_EQ(load_error("train:\n  steps:\n"),
            "[run.yaml:2] 'train.steps': expected an integer at least 0, found null");
}

TEST(Load, FlagsOverrideTheFile) {
  const RunConfig run = loaded("train: {optimizer: {lr: 1}}\nsources: [{path: a, weight: 3}]",
                               {"--train.optimizer.lr", "2e-5", "--train.optimizer.betas=[0.1,0.2]", "--name",
                                "a: b #c", "--train.compile", "true", "--sources", "[x, {path: y}]",
                                "--buckets=[]", "--train.mode", "grpo", "--note="});
  EXPECT_EQ(run.train.optimizer.lr, 2e-5);
  EXPECT_EQ(run.train.optimizer.betas[1], 0.2);
  EXPECT_EQ(run.name, "a: b #c");
  EXPECT_TRUE(run.train.compile);
  EXPECT_EQ(run.sources, (std::vector<Source>{{"x", 1, {}}, {"y", 1, {}}}));
  EXPECT_TRUE(run.buckets.empty());
  EXPECT_EQ(run.train.mode, Mode::kGrpo);
  EXPECT_EQ(run.note, "");
}

TEST(Load, KnowsWhatWasWritten) {
  RunConfig run;
  Schema schema = schema_of(run);
  load_text(schema, "train: {optimizer: {lr: 1e-5}}\nsources: [{path: a, weight: 3}, b]", "run.yaml",
            {"--train.steps=1000"});
  EXPECT_TRUE(schema.was_written("train.optimizer.lr"));
  EXPECT_TRUE(schema.was_written("train.optimizer"));
  EXPECT_TRUE(schema.was_written("train.steps"));
  EXPECT_TRUE(schema.was_written("sources[0].weight"));
  EXPECT_FALSE(schema.was_written("sources[1].weight"));
  EXPECT_FALSE(schema.was_written("train.optimizer.clip"));
  EXPECT_FALSE(schema.was_written("name"));
  EXPECT_THROW(schema.was_written("train.nothing"), Error);
  load_text(schema, "", "run.yaml", {"--sources", "[{path: a}]"});
  EXPECT_FALSE(schema.was_written("sources[0].weight"));
  EXPECT_FALSE(schema.was_written("train"));
}

TEST(Load, UnknownKeysNameTheNearest) {
  EXPECT_EQ(load_error("train:\n  optimizer:\n    lrr: 1\n"),
            "[run.yaml:3] unknown key 'train.optimizer.lrr'; did you mean 'train.optimizer.lr'?");
  EXPECT_EQ(load_error("lr: 1"), "[run.yaml:1] unknown key 'lr'; did you mean 'train.optimizer.lr'?");
  EXPECT_EQ(load_error("trian:\n  steps: 1"), "[run.yaml:1] unknown key 'trian'; did you mean 'train'?");
  EXPECT_EQ(load_error("sources:\n- path: a\n- path: b\n  wieght: 1\n"),
            "[run.yaml:4] unknown key 'sources[1].wieght'; did you mean 'sources[1].weight'?");
  EXPECT_EQ(
      load_error("train: {zzzzzz: 1}"),
      "[run.yaml:1] unknown key 'train.zzzzzz'; the keys in 'train' are optimizer, steps, compile, mode, "
      "fallback, metrics");
  EXPECT_EQ(load_error("", {"--trian.optimizer.lr", "1"}),
            "[command line] unknown key 'trian.optimizer.lr'; did you mean 'train.optimizer.lr'?");
  EXPECT_EQ(load_error("", {"--train.optimizer.warm-up=1"}),
            "[command line] unknown key 'train.optimizer.warm-up'; did you mean 'train.optimizer.warmup'?");
  EXPECT_EQ(load_error("", {"--train.steps.more=1"}),
            "[command line] unknown key 'train.steps.more'; did you mean 'train.steps'?");
  EXPECT_EQ(load_error("train.steps: 1"),
            "[run.yaml:1] unknown key 'train.steps'; keys are dotted only in flags, in YAML they are nested");
}

TEST(Load, WrongValuesSayWhatIsExpected) {
  EXPECT_EQ(load_error("\ntrain:\n  optimizer:\n    lr: fast\n"),
            "[run.yaml:4] 'train.optimizer.lr': expected a number above 0, found 'fast'");
  EXPECT_EQ(load_error("train: {steps: 1.5}"),
            "[run.yaml:1] 'train.steps': expected an integer at least 0, found '1.5'");
  EXPECT_EQ(load_error("train: {steps: 1_000}"),
            "[run.yaml:1] 'train.steps': expected an integer at least 0, found '1_000'; numbers have no "
            "underscores");
  EXPECT_EQ(
      load_error("train: {steps: '5'}"),
      "[run.yaml:1] 'train.steps': expected an integer at least 0, found the quoted text \"5\"; remove the "
      "quotes");
  EXPECT_EQ(
      load_error("train: {compile: yes}"),
      "[run.yaml:1] 'train.compile': expected true or false, found 'yes'; only true and false are booleans");
  EXPECT_EQ(load_error("train: {mode: gpro}"),
            "[run.yaml:1] 'train.mode': expected one of sft, grpo, found 'gpro'; did you mean 'grpo'?");
  EXPECT_EQ(load_error("precision: 8"), "[run.yaml:1] 'precision': expected one of 16, 32, found '8'");
  EXPECT_EQ(
      load_error("", {"--train.optimizer.warmup", "-1"}),
      "[command line] 'train.optimizer.warmup': expected an integer at least 0 and at most 1000, found '-1'");
  EXPECT_EQ(load_error("train: {optimizer: {warmup: 3000000000}}"),
            "[run.yaml:1] 'train.optimizer.warmup': expected an integer at least 0 and at most 1000, found "
            "'3000000000'");
}

TEST(Load, WrongShapesSayWhatIsExpected) {
  EXPECT_EQ(load_error("train: {optimizer: {betas: [1]}}"),
            "[run.yaml:1] 'train.optimizer.betas': expected a list of 2 numbers at least 0 and below 1, "
            "found a list "
            "of 1");
  EXPECT_EQ(load_error("train:\n  optimizer:\n    betas:\n    - 0.5\n    - 1\n"),
            "[run.yaml:5] 'train.optimizer.betas[1]': expected a number at least 0 and below 1, found '1'");
  EXPECT_EQ(load_error("buckets: 5"),
            "[run.yaml:1] 'buckets': expected a list of integers at least 1, found '5'");
  EXPECT_EQ(load_error("name: [a]"), "[run.yaml:1] 'name': expected text, found a list of 1");
  EXPECT_EQ(load_error("train: 5"),
            "[run.yaml:1] 'train': expected a mapping of keys, found '5'; its keys are optimizer, steps, "
            "compile, mode, fallback, metrics");
  EXPECT_EQ(load_error("- a"), "[run.yaml:1] expected a mapping of keys, found a list of 1");
  EXPECT_EQ(load_error("sources: {path: a}"),
            "[run.yaml:1] 'sources': expected text, or a list of texts and mappings, found a mapping");
  EXPECT_EQ(load_error("sources:\n- path: a\n- [b]"),
            "[run.yaml:3] 'sources[1]': expected a mapping of keys, found a list of 1; its keys are path, "
            "weight, columns");
  EXPECT_EQ(load_error("sources:\n- path: a\n- weight: 1"),
            "[run.yaml:3] 'sources[1].path' is missing; expected text. file to read");
}

TEST(Load, OneTextStandsForAListOfIt) {
  EXPECT_EQ(loaded("sources: a.jsonl").sources, (std::vector<Source>{{"a.jsonl", 1, {}}}));
  EXPECT_EQ(loaded("", {"--sources", "a.jsonl"}).sources, (std::vector<Source>{{"a.jsonl", 1, {}}}));
  EXPECT_EQ(loaded("sources: [{path: a, columns: prompt}]").sources,
            (std::vector<Source>{{"a", 1, {"prompt"}}}));
  EXPECT_EQ(load_error("buckets: 5"),
            "[run.yaml:1] 'buckets': expected a list of integers at least 1, found '5'");
}

TEST(Load, AFlagGivenTwiceIsAnError) {
  const std::string message = "[command line] flag --train.steps is given twice; give it once";
  EXPECT_EQ(load_error("", {"--train.steps", "1", "--train.steps", "2"}), message);
  EXPECT_EQ(load_error("", {"--train.steps=1", "--name", "x", "--train.steps", "1"}), message);
  EXPECT_EQ(loaded("train: {steps: 1}", {"--train.steps", "2"}).train.steps, 2);
}

TEST(Load, NumbersAreFinite) {
  for (const char* text : {".inf", "-.inf", "+.Inf", ".nan", "inf", "nan", "Infinity"})
    EXPECT_EQ(
        load_error(fmt::format("train: {{optimizer: {{lr: {}}}}}", text)),
        fmt::format("[run.yaml:1] 'train.optimizer.lr': expected a number above 0, found '{}'; a number "
                    "must be finite",
                    text));
  EXPECT_EQ(load_error("train: {optimizer: {lr: 1e999}}"),
            "[run.yaml:1] 'train.optimizer.lr': expected a number above 0, found '1e999'");
}

TEST(Load, TextHasNoNul) {
  EXPECT_EQ(load_error("name: \"a\\0b\""), "[run.yaml:1] 'name': the text has a NUL character; remove it");
}

struct WithPaths {
  std::string path, text;
  std::vector<std::string> files;
};
void describe(Schema& s, WithPaths& c) {
  s.field("path", c.path, "a path").path();
  s.field("text", c.text, "a text").answer("theirs", "write ours");
  s.field("files", c.files, "paths").path();
}

TEST(Load, PathsKnowTheUsersFolder) {
  WithPaths config;
  Schema schema = schema_of(config);
  if (std::getenv("HOME") == nullptr) GTEST_SKIP() << "no $HOME here";
  const std::string home = std::getenv("HOME");
  load_text(schema, "path: ~/m\ntext: ~/m\nfiles: [$HOME/a, b]", "f.yaml");
  EXPECT_EQ(config.path, home + "/m");
  EXPECT_EQ(config.text, "~/m");
  EXPECT_EQ(config.files, (std::vector<std::string>{home + "/a", "b"}));
}

TEST(Load, WrongFlagsSayWhatToWrite) {
  EXPECT_EQ(load_error("", {"--sources[0].path", "x"}),
            "[command line] 'sources[0]': 'sources' has no elements; set the whole list: --sources [...]");
  EXPECT_EQ(
      load_error("", {"--buckets[0]", "5"}),
      "[command line] 'buckets[0]': one element of the list 'buckets' cannot be set; set the whole list: "
      "--buckets [...]");
  EXPECT_EQ(
      load_error("", {"--train.optimizer.betas.0=1"}),
      "[command line] 'train.optimizer.betas.0': one element of the list 'train.optimizer.betas' cannot be "
      "set; set the whole list: --train.optimizer.betas [...]");
  EXPECT_EQ(
      load_error("", {"--train.optimizer", "{lr: 1}"}),
      "[command line] 'train.optimizer' is a group of keys; set them one by one: --train.optimizer.lr ...");
  EXPECT_EQ(load_error("", {"--train.steps"}),
            "[command line] flag --train.steps has no value; expected an integer at least 0");
  EXPECT_EQ(load_error("", {"--train.steps", "--name"}),
            "[command line] flag --train.steps has no value; expected an integer at least 0");
  EXPECT_EQ(load_error("", {"train.steps=1"}),
            "[command line] expected a flag such as --key VALUE, found 'train.steps=1'");
  EXPECT_EQ(load_error("", {"--buckets", "[1, 2"}),
            "[command line] 'buckets': expected a list of integers at least 1, found '[1, 2'");
  EXPECT_NE(load_error("", {"--buckets", "[1, [2]"}).find("[command line] not valid YAML: "),
            std::string::npos);
}

struct Member {
  std::string name;
  std::vector<Source> sources;
  Optimizer optimizer;
};
void describe(Schema& s, Member& c) {
  s.field("name", c.name, "its name");
  s.list("sources", c.sources, "its files").shorthand("path");
  s.group("optimizer", c.optimizer, "its optimizer");
}
struct Team {
  std::vector<Member> members;
};
void describe(Schema& s, Team& c) { s.list("members", c.members, "who is in it"); }

TEST(Load, FlagsSetKeysOfOneElement) {
  const std::string yaml = "sources: [a.jsonl, {path: b.jsonl, weight: 3}]";
  RunConfig run = loaded(yaml, {"--sources[1].weight", "5", "--sources[0]=c.jsonl"});
  EXPECT_EQ(run.sources, (std::vector<Source>{{"c.jsonl", 1, {}}, {"b.jsonl", 5, {}}}));
  run = loaded(yaml, {"--sources", "[x, y]", "--sources[1].columns", "[k]"});
  EXPECT_EQ(run.sources, (std::vector<Source>{{"x", 1, {}}, {"y", 1, {"k"}}}));
  EXPECT_EQ(load_error(yaml, {"--sources[2].weight", "5"}),
            "[command line] 'sources[2]': 'sources' has no such element; its elements are 0 to 1");
  EXPECT_EQ(
      load_error(yaml, {"--sources.weight", "5"}),
      "[command line] 'sources.weight': 'sources' is a list; name an element (--sources[0].weight) or set "
      "the whole list: --sources [...]");
  EXPECT_EQ(load_error(yaml, {"--sources[0].weigth", "5"}),
            "[command line] unknown key 'sources[0].weigth'; did you mean 'sources[0].weight'?");
  EXPECT_EQ(load_error(yaml, {"--sources[0].weight", "-5"}),
            "[command line] 'sources[0].weight': expected a number at least 0, found '-5'");
  EXPECT_EQ(load_error(yaml, {"--sources[0].weight", "5", "--sources", "[x]"}),
            "[command line] flag --sources sets the list that --sources[0].weight changes; write --sources "
            "first");
}

TEST(Load, FlagsNameElements) {
  const auto team = [](const Flags& flags) {
    Team team;
    Schema schema = schema_of(team);
    load_text(schema, "members: [{name: law}, {name: art, sources: [a, b]}]", "run.yaml", flags);
    EXPECT_TRUE(schema.was_written("members[1]"));
    return team;
  };
  const Team set = team(
      {"--members[art].optimizer.lr", "2", "--members[art].sources[1]", "c", "--members[0].name", "ius"});
  EXPECT_EQ(set.members[0].name, "ius");
  EXPECT_EQ(set.members[0].optimizer.lr, Optimizer().lr);
  EXPECT_EQ(set.members[1].optimizer.lr, 2);
  EXPECT_EQ(set.members[1].sources[1].path, "c");
  EXPECT_EQ(
      error_of([&] {
        team({"--members[lex].name", "x"});
      }),
      "[command line] 'members[lex]': 'members' has no such element; its elements are 0 to 1, or by name "
      "law, art");
  EXPECT_EQ(error_of([&] {
              team({"--members[law]", "x"});
            }),
            "[command line] 'members[law]' is an element of a list; set its keys one by one: "
            "--members[law].name ...");
  EXPECT_EQ(error_of([&] {
              team({"--members[law].name", "x", "--members[0].name", "y"});
            }),
            "[command line] flag --members[0].name is given twice; give it once");
}

TEST(Load, MergedKeysGiveWay) {
  const RunConfig run = loaded(
      "x_common: &c {steps: 5, mode: grpo, optimizer: {lr: 1}}\n"
      "train:\n  <<: *c\n  steps: 7\n");
  EXPECT_EQ(run.train.steps, 7);
  EXPECT_EQ(run.train.mode, Mode::kGrpo);
  EXPECT_EQ(run.train.optimizer.lr, 1);
  EXPECT_NE(load_error("x_common: &c {steps: 5}\n").find("unknown key 'x_common'"), std::string::npos);
  EXPECT_NE(load_error("x: &c 5\ny: *c\ntrain: {steps: *c}").find("unknown key 'y'"), std::string::npos);
}

TEST(Load, RequiredKeysMayComeFromFlags) {
  struct Needy {
    std::string path;
  } needy;
  Schema schema;
  schema.field("path", needy.path, "the model").required();
  EXPECT_THROW(load_text(schema, "", "run.yaml"), Error);
  load(schema, "", {"--path", "m"});
  EXPECT_EQ(needy.path, "m");
}

TEST(Load, ReadsFilesAndNamesThem) {
  const TemporaryDirectory folder;
  RunConfig run;
  Schema schema = schema_of(run);
  write_file(folder / "run.yaml", "name: here\n");
  load(schema, folder / "run.yaml");
  EXPECT_EQ(run.name, "here");
  try {
    load(schema, folder / "absent.yaml");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()),
              "[" + (folder / "absent.yaml") + "] cannot open: No such file or directory");
  }
}

}  // namespace
}  // namespace temper::config
