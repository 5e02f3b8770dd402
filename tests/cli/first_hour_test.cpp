// What a new user meets: help, names and habits of other programs, mistakes.
#include <algorithm>
#include <regex>
#include <sstream>

#include "tests/cli/cli_fixture.h"

namespace temper {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST_F(Cli, HelpFitsAScreen) {
  for (const char* command : {"",
                              "train",
                              "generate",
                              "batch",
                              "chat",
                              "merge",
                              "data",
                              "data inspect",
                              "init",
                              "doctor",
                              "ops",
                              "verify-layout",
                              "plan",
                              "quantize",
                              "export",
                              "eval",
                              "weights",
                              "weights send",
                              "compare-logprobs",
                              "rollouts show"}) {
    const Outcome outcome = run(std::string(command) + " --help");
    EXPECT_EQ(outcome.code, 0) << command;
    const std::vector<std::string> lines = lines_of(outcome.out);
    EXPECT_LE(lines.size(), 24u) << command;
    for (const std::string& line : lines) EXPECT_LE(line.size(), 80u) << command << ": " << line;
  }
}

TEST_F(Cli, KeysInTrainsHelpAreKeysAndTheirExamplesValues) {
  const std::string text = run("train --help").out;
  const std::regex example("\n  --([a-z_.]+\\.?[a-z_]+) ('[^']+'|[^ ]+)  ");
  int keys = 0;
  for (auto it = std::sregex_iterator(text.begin(), text.end(), example); it != std::sregex_iterator();
       ++it) {
    const std::string key = (*it)[1], value = (*it)[2];
    if (key == "ranks") continue;  // of the command, not of the configuration
    ++keys;
    EXPECT_EQ(run("train --help " + key).code, 0) << key;
    const Outcome outcome = run("train --" + key + " " + value);
    EXPECT_EQ(outcome.err.find("'" + key + "': expected"), std::string::npos) << outcome.err;
    EXPECT_EQ(outcome.err.find("unknown key"), std::string::npos) << outcome.err;
  }
  EXPECT_EQ(keys, 12);
}

TEST_F(Cli, HelpOfAllAndOfOneKey) {
  const std::string all = run("train --help all").out;
  const size_t kernels = all.find("--model.ops_implementation."), last = all.find("--memory_limit_mib");
  ASSERT_NE(kernels, std::string::npos);
  EXPECT_GT(kernels, last);
  EXPECT_EQ(all.find("\n  --", all.rfind("--model.ops_implementation.") + 1), std::string::npos);
  EXPECT_NE(run("train --help lr").out.find("--train.optimizer.lr\n      The peak learning rate."),
            std::string::npos);
  EXPECT_NE(run("ops --help data.packing").out.find("--data.packing\n"), std::string::npos);
  EXPECT_NE(run("data inspect --help eval").out.find("--eval.every_steps\n"), std::string::npos);
  expect_refused("train --help learning_rate", 2, "Temper calls it 'train.optimizer.lr'");
  expect_refused("train --help train.optmizer.lr", 2, "did you mean");
  expect_refused("train --help lr --help seed", 2, "--help is given twice; give it once");
}

TEST_F(Cli, OptionsOfOthersAreAnswered) {
  const std::string model = folder() + "/model";
  expect_refused("generate " + model + " -p x --max-tokens 4", 2,
                 "unknown option '--max-tokens'; did you mean '--max-new-tokens'?");
  expect_refused("generate rows.jsonl --out answers.jsonl", 2,
                 "unknown option '--out'; 'temper batch MODEL FILE.jsonl --out OUT.jsonl' answers all "
                 "prompts of a file");
  expect_refused("chat " + model + " --temp=1", 2, "did you mean '--temperature'?");
  expect_refused("generate " + model + " -p x --top_k 4", 2, "did you mean '--top-k'?");
  expect_refused("generate " + model + " -p x -p y", 2, "option --prompt is given twice; give it once");
  expect_refused("generate " + model + " -p x --raw --raw", 2, "option --raw is given twice");
  expect_refused("generate " + model + " -p x --logit-bias y", 2,
                 "unknown option '--logit-bias'; see 'temper generate --help'");
  expect_refused("data inspct " + yaml(), 2,
                 "unknown command 'data inspct'; did you mean 'data inspect'? Commands are [data inspect]");
  expect_refused("train " + yaml() + " --learning_rate 1", 2, "Temper calls it 'train.optimizer.lr'");
  expect_refused("train " + yaml() + " --dry_run", 2, "did you mean '--dry-run'?");
  expect_refused("train " + yaml() + " --dry-run --dry-run", 2, "--dry-run is given twice");
  expect_refused("train " + yaml() + " --train.steps 1 --train.steps 2", 2, "--train.steps is given twice");
  expect_refused("data inspect " + yaml() + " --rows 1 --rows 2", 2, "--rows is given twice");
  expect_refused("train " + yaml() + " --recipe dpo", 2, "write recipe: preference");
  expect_refused("train " + yaml() + " --train.optimizer.lr .inf --dry-run", 2, "a number must be finite");
}

TEST_F(Cli, WhatDoesNotFitIsAnsweredWithWhatDoes) {
  expect_refused(
      "train " + yaml() + " --data.max_length 513", 2,
      "[data.max_length] is 513, but the model's max_position_embeddings is 512; set it to 512 or less");
  write_file(folder() + "/silent.jsonl", "{\"prompt\": \"a\", \"completion\": \"\"}\n");
  const Outcome silent = run("train " + yaml() + " --dry-run --data.train " + folder() + "/silent.jsonl");
  EXPECT_NE(silent.err.find("dropped 1 with an empty answer; data.on_empty_answer: learn keeps"),
            std::string::npos)
      << silent.err;
  EXPECT_EQ(silent.err.find("data.max_length"), std::string::npos) << silent.err;
  expect_refused("train " + yaml() + " --model.path Qwen/Qwen3-0.6B", 2,
                 "comes with 'hf download Qwen/Qwen3-0.6B --local-dir Qwen/Qwen3-0.6B'");
}

TEST_F(Cli, AFileThatIsNoRunIsAnsweredWithItsKey) {
  const std::string rows = folder() + "/train.jsonl", model = folder() + "/model";
  for (const char* command : {"train", "data inspect", "ops"})
    expect_refused(std::string(command) + " " + rows, 2,
                   "[" + rows + "] is a data file, expected a run's YAML file; write --data.train " + rows);
  for (const char* command : {"train", "data inspect"})
    expect_refused(std::string(command) + " " + model, 2,
                   "[" + model + "] is a folder, expected a run's YAML file; write --model.path " + model);
}

TEST_F(Cli, APlainFileAndTheUsersFolderAreEnough) {
  write_file(folder() + "/plain.yaml",
             "model: {path: ~/model}\ndata: {train: $HOME/train.jsonl, max_length: 64}\noutput: ~/plain\n"
             "train: {steps: 2}\n");
  const std::string home = std::getenv("HOME");
  ::setenv("HOME", folder().c_str(), 1);
  const Outcome outcome = run("train " + folder() + "/plain.yaml");
  ::setenv("HOME", home.c_str(), 1);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(exists(folder() + "/plain/model/model.safetensors"));
}

TEST_F(Cli, AnOutputThatCannotBeMadeIsRefusedAtOnce) {
  for (const std::string dry : {"", " --dry-run"}) {
    expect_refused("train " + yaml() + " --output " + yaml() + dry, 2, "the existing path is not a folder");
    expect_refused("train " + yaml() + " --output " + yaml() + "/run/1" + dry, 2, "is not a folder");
    expect_refused("train " + yaml() + " --output " + folder() + "/" + std::string(300, 'x') + dry, 2,
                   "a name in it has 300 bytes");
    expect_refused("train " + yaml() + " --output ''" + dry, 2, "[output] is empty");
  }
}

TEST_F(Cli, ARowThatIsSkippedIsSaidOnce) {
  write_file(folder() + "/mixed.jsonl", "{\"text\": 5}\n{\"text\": \"a b c\"}\n{\"text\": \"d e f\"}\n");
  const Outcome outcome =
      run("train " + yaml() + " --output " + folder() + "/mixed --train.steps 1 --data.train " + folder() +
          "/mixed.jsonl --data.on_bad_row skip --train.rows_per_step 1 "
          "--data.packing none --data.shuffle false");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const std::string said = "warning: row skipped: [" + folder() + "/mixed.jsonl:1]";
  EXPECT_NE(outcome.err.find(said), std::string::npos) << outcome.err;
  EXPECT_EQ(outcome.err.find(said), outcome.err.rfind(said)) << outcome.err;
}

TEST_F(Cli, DryRunEstimatesTime) {
  const std::regex time("\ntime +about [0-9.hms ]+ for 12 updates of [0-9.e-]+ s;");
  for (const std::string options : {"", " --adapters '[{rank: 4}, {name: b, rank: 8}]'"}) {
    const std::string out = folder() + "/timed";
    const Outcome outcome = run("train " + yaml() + " --output " + out + " --dry-run" + options);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_TRUE(std::regex_search(outcome.out, time)) << outcome.out;
    EXPECT_FALSE(exists(out));
  }
}

TEST_F(Cli, AFinishedRunSaysSo) {
  const std::string out = folder() + "/done", command = "train " + yaml() + " --output " + out;
  EXPECT_EQ(run(command).err.find("finished"), std::string::npos);
  EXPECT_NE(run(command + " --dry-run").out.find("all of them are done, this run is finished"),
            std::string::npos);
  const Outcome again = run(command);
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_NE(again.err.find("this run is finished: it trained 12 steps"), std::string::npos) << again.err;
  EXPECT_NE(run(command + " --train.steps 13 --dry-run").out.find(": 12 are done"), std::string::npos);
  EXPECT_EQ(run(command + " --train.steps 13").err.find("finished"), std::string::npos);
}

TEST_F(Cli, AFinishedRunKnowsItsAnswers) {
  const std::string out = folder() + "/known", command = "train " + yaml() + " --train.steps 2 --output " +
                                                         out + " --data.eval [" + folder() +
                                                         "/eval.jsonl] --eval.exact_match ";
  const auto said = [&](const std::string& questions) { return run(command + questions).err; };
  const auto after = [&] { return Json::parse_file(out + "/summary.json").at("exact_match_after"); };
  EXPECT_NE(said("2").find("exact match after training"), std::string::npos);
  const Json known = after();
  const std::string again = said("2");
  EXPECT_NE(again.find("this run is finished"), std::string::npos) << again;
  EXPECT_EQ(again.find("exact match"), std::string::npos) << again;
  EXPECT_EQ(after(), known);
  EXPECT_NE(said("3").find("exact match after training"), std::string::npos);
}

TEST_F(Cli, TheConsolesTextIsKept) {
  const std::string out = folder() + "/kept", command = "train " + yaml() + " --output " + out;
  const Outcome first =
      run(command + " --data.train " + folder() + "/train.jsonl --train.schedule.warmup_steps 20");
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_NE(first.err.find("[train.schedule.warmup_steps] is 20, but the run has 12 updates"),
            std::string::npos)
      << first.err;
  const std::string kept = read_file(out + "/console.log");
  for (const std::string& line : lines_of(first.err))
    EXPECT_NE(kept.find(line + "\n"), std::string::npos) << line << "\n" << kept;
  const Outcome refused = run(command + " --train.schedule.warmup_steps 20 --train.seed 9");
  EXPECT_EQ(refused.code, 2);
  const std::string both = read_file(out + "/console.log");
  EXPECT_TRUE(both.starts_with(kept));
  EXPECT_NE(both.find("temper: [" + out + "] holds a run with another configuration"), std::string::npos)
      << both;
}

}  // namespace
}  // namespace temper
