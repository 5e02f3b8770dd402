// What a run leaves behind is true: of which program, of which data, and of what it says at its start and
// end.
#include <cmath>
#include <regex>

#include "base/hash.h"
#include "checkpoints/files/manifest.h"
#include "tests/cli/cli_fixture.h"

namespace temper {
namespace {

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// The state of a run as another program would have saved it.
void pretend_program(const std::string& state_folder, int64_t step, const std::string& program) {
  const std::string path = state_folder + "/state.json";
  Json state = Json::parse_file(path);
  state.set("program", program);
  write_file(path, state.dump());
  checkpoints::Manifest manifest = checkpoints::read_manifest(state_folder, step);
  manifest.files["state.json"] = {file_size(path), hash_file(path)};
  remove_all(state_folder + "/manifest.json");
  checkpoints::write_manifest(state_folder, manifest);
}

TEST_F(Cli, ARefusedCommandChangesNothingInTheFolder) {
  const std::string out = folder() + "/record", command = "train " + yaml() + " --output " + out;
  ASSERT_EQ(run(command).code, 0);
  const std::vector<std::string> names{"config.yaml", "kernels.json", "summary.json", "metrics.jsonl",
                                       "loss.svg"};
  std::vector<std::string> before;
  for (const std::string& name : names) before.push_back(read_file(out + "/" + name));
  write_file(folder() + "/other.jsonl", read_file(folder() + "/train.jsonl") + "{\"text\": \"one more\"}\n");
  for (const char* dry : {"", " --dry-run"})
    expect_refused(command + " --data.train [" + folder() + "/other.jsonl]" + dry, 2,
                   "cannot resume with other data");
  for (size_t i = 0; i < names.size(); ++i) EXPECT_EQ(read_file(out + "/" + names[i]), before[i]) << names[i];
  ASSERT_EQ(run(command + " --train.steps 13").code, 0);
  EXPECT_NE(read_file(out + "/config.yaml").find("steps: 13  # written"), std::string::npos);
}

TEST_F(Cli, FilesOfARunNameTheProgram) {
  const std::string program = first_line(run("--version").out);
  EXPECT_TRUE(
      std::regex_match(program, std::regex(R"(temper [0-9.]+( \(commit [0-9a-f]{7,40}(\+changes)?\))?)")))
      << program;
  const std::string out = folder() + "/named", command = "train " + yaml() + " --output " + out;
  ASSERT_EQ(run(command + " --train.steps 3").code, 0);
  EXPECT_EQ(first_line(read_file(out + "/config.yaml")), "# " + program);
  EXPECT_NE(first_line(read_file(out + "/console.log")).find(program), std::string::npos);
  for (const char* name : {"/summary.json", "/kernels.json"}) {
    const Json file = Json::parse_file(out + name);
    EXPECT_EQ(program.find("temper " + file.at("version").as_string()), 0u);
    const Json& commit = file.at("commit");
    EXPECT_EQ(commit.is_string() ? program.find(commit.as_string()) != std::string::npos
                                 : program.find("commit") == std::string::npos,
              true)
        << name;
  }
  const Outcome same = run(command + " --train.steps 4");
  ASSERT_EQ(same.code, 0) << same.err;
  EXPECT_EQ(same.err.find("was saved by"), std::string::npos) << same.err;
  pretend_program(out + "/checkpoints/step-000004", 4, "0.0.9 (commit 0123456789ab)");
  const Outcome other = run(command + " --train.steps 5");
  ASSERT_EQ(other.code, 0) << other.err;
  EXPECT_NE(other.err.find("was saved by temper 0.0.9 (commit 0123456789ab), this is "), std::string::npos)
      << other.err;
}

// Of a source that is no git checkout, as from an archive.
TEST_F(Cli, AnArchiveBuildsWithoutACommit) {
  const std::string place = folder() + "/archive", header = place + "/commit.h";
  make_directories(place);
  const std::string look =
      "cmake -D SOURCE=" + place + " -D HEADER=" + header + " -P " TEMPER_SOURCE_DIR "/cmake/commit.cmake";
  ASSERT_EQ(std::system(look.c_str()), 0);
  EXPECT_NE(read_file(header).find("TEMPER_COMMIT \"\""), std::string::npos) << read_file(header);
  const auto written = std::filesystem::last_write_time(header);
  ASSERT_EQ(std::system(look.c_str()), 0);
  EXPECT_EQ(std::filesystem::last_write_time(header), written);
}

TEST_F(Cli, ASummaryHasWhatPeopleAskFor) {
  const std::string out = folder() + "/summed";
  const Outcome outcome = run("train " + yaml() + " --output " + out + " --data.eval [" + folder() +
                              "/eval.jsonl] --train.optimizer.lr 0.5 --train.schedule.type constant "
                              "--train.epochs 3 --eval.every_steps 1");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json summary = Json::parse_file(out + "/summary.json");
  const double perplexity = std::exp(summary.at("eval_loss").as_double());
  EXPECT_NEAR(summary.at("eval_perplexity").as_double(), perplexity, 1e-3 * perplexity);
  for (const char* name : {"loss", "eval_loss", "train_seconds"})
    EXPECT_LE(summary.at(name).dump().size(), 12u) << name;
  for (const char* name : {"started", "finished"})
    EXPECT_TRUE(std::regex_match(summary.at(name).as_string(), std::regex("20[0-9-]{8}T[0-9:]{8}Z"))) << name;
  double epoch = 0;
  for (const Json& line : metrics(out))
    if (line.find("loss") != nullptr) {
      EXPECT_GT(line.at("epoch").as_double(), epoch);
      epoch = line.at("epoch").as_double();
    }
  EXPECT_LT(epoch, 1);
  EXPECT_GE(summary.at("data").at("trained").as_int(), 48);  // in as many packed rows
  EXPECT_LE(summary.at("data").at("trained").as_int(), summary.at("data").at("kept").as_int());
  for (const std::string part :
       {"[train.epochs] is 3, and has no effect: steps is 12",
        "checkpoints: every 5 steps and at the end; the last 2 of", "trained 12 steps in ", ", loss ",
        "rows, of ", "had the best evaluation (loss "})
    EXPECT_NE(outcome.err.find(part), std::string::npos) << part << "\n" << outcome.err;
}

// Checkpoints by time, where nothing is said of steps: a run that is killed loses what came after the newest.
TEST_F(Cli, CheckpointsComeByTime) {
  const auto states = [](const std::string& name, const std::string& flags) {
    const std::string text = read_file(yaml()), config = folder() + "/" + name + ".yaml",
                      out = folder() + "/" + name;
    write_file(config, text.substr(0, text.find("checkpoint:")));
    const Outcome outcome = run("train " + config + " --output " + out + flags);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return std::pair{list_directory(out + "/checkpoints"), outcome.err};
  };
  const auto [by_default, said] = states("by_default", "");
  EXPECT_EQ(by_default, (std::vector<std::string>{"step-000012"}));
  EXPECT_NE(said.find("checkpoints: every 5 minutes and at the end; the last 2 of "), std::string::npos)
      << said;
  const auto [always, often] = states("always", " --checkpoint.every_minutes 1e-9 --checkpoint.keep_last 20");
  EXPECT_EQ(always.size(), 12u) << often;
  const auto [never, once] = states("never", " --checkpoint.every_steps 0");
  EXPECT_EQ(never.size(), 1u);
  EXPECT_NE(once.find("checkpoints: one at the end ("), std::string::npos) << once;
}

TEST_F(Cli, HugeNumbersAreRefusedAtOnce) {
  const std::string dry = "train " + yaml() + " --dry-run --output " + folder() + "/huge ";
  for (const char* key :
       {"epochs 1e18", "epochs 1e7", "rows_per_step 1000000001", "tokens_per_step 100000000000"})
    expect_refused(dry + "--train." + key, 2, " at most ");
  expect_refused(dry + "--train.steps 10000000000", 2, " at most ");
  write_file(folder() + "/few.jsonl", "{\"text\": \"a b\"}\n{\"text\": \"c d\"}\n");
  const std::string few = "--data.packing none --data.train [" + folder() + "/few.jsonl] ";
  expect_refused(dry + few + "--train.rows_per_step 1000", 2,
                 "an epoch has about 2 rows: one update would read the data 500 times; set it to 2 or less");
  // Both rows are one when they are packed.
  const std::string packed = "--data.train [" + folder() + "/few.jsonl] --train.rows_per_step ";
  expect_refused(dry + packed + "150", 2, "an epoch has about 1 rows: one update would read the data 150 ");
  expect_refused(
      dry + few + "--train.epochs 1e6 --train.rows_per_step 1 --adapters '[{name: a, epochs: 1e9}]'", 2,
      " at most ");
}

// All rows that the run would read are read, and the first row of a file says what is wrong with all of them.
TEST_F(Cli, ADryRunReadsAllRows) {
  std::string rows;
  for (int i = 0; i < 300; ++i) rows += "{\"text\": \"one two three\"}\n";
  write_file(folder() + "/late.jsonl", rows + "{\"text\": broken\n");
  const std::string dry =
      "train " + yaml() + " --dry-run --output " + folder() + "/late --data.train [" + folder();
  expect_refused(dry + "/late.jsonl] --train.steps 0", 2, "late.jsonl:301:");
  // Of two updates a few rows are read.
  const Outcome few = run(dry + "/late.jsonl] --train.steps 2 --data.shuffle false --data.packing none");
  EXPECT_EQ(few.code, 0) << few.err;
  std::string wrong;
  for (int i = 0; i < 300; ++i) wrong += "{\"wrong\": 1}\n";
  write_file(folder() + "/wrong.jsonl", wrong);
  expect_refused(dry + "/wrong.jsonl]", 2, "wrong.jsonl:1]");
}

}  // namespace
}  // namespace temper
