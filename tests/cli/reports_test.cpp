// What files, rows and commands say about models and generation is used, or reported as unused.
#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <map>
#include <sstream>

#include "tests/cli/cli_fixture.h"

namespace temper {
namespace {

constexpr const char* kOtherHead = TEMPER_SOURCE_DIR "/tests/goldens/tied_with_other_head";

class Reports : public Cli {
 protected:
  static std::vector<Json> answers_in(const std::string& file) {
    std::vector<Json> lines;
    std::istringstream text(read_file(file));
    for (std::string line; std::getline(text, line);) lines.push_back(Json::parse(line, file));
    return lines;
  }

  // Of a table of temper eval, by its first column.
  static std::map<std::string, double> losses_of(const Outcome& outcome) {
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    std::istringstream table(outcome.out);
    std::string title, name, tokens, perplexity;
    std::getline(table, title);
    std::map<std::string, double> losses;
    for (double loss = 0; table >> name >> tokens >> loss >> perplexity;) losses[name] = loss;
    return losses;
  }

  static void set_in(const std::string& file, const std::string& key, const Json& value) {
    Json json = Json::parse_file(file);
    json.set(key, value);
    write_file(file, json.dump(2));
  }

  // The example's model, which stops at other tokens; none: at none.
  static std::string model_that_stops_at(const std::string& name, const Json& ids) {
    const std::string model = folder() + "/" + name;
    std::filesystem::copy(folder() + "/model", model);
    for (const char* file : {"/config.json", "/generation_config.json"})
      set_in(model + file, "eos_token_id", ids);
    return model;
  }

  static std::string batch(const std::string& model, const std::string& rows, const std::string& out,
                           const std::string& more) {
    return "batch " + model + " " + folder() + "/" + rows + " --out " + folder() + "/" + out + " " + more;
  }
};

// ids of an answer have one text, whatever the stop strings; and a special token's name stops at its id.
TEST_F(Reports, EqualIdsAreEqualTextsWithAnyStopString) {
  std::string rows;
  for (const char* prompt : {"Zq", "hello", "1+2", "xyz!", "the blue", "~}"})
    rows += std::string(R"({"prompt": ")") + prompt + "\"}\n";
  write_file(folder() + "/ask.jsonl", rows);
  const std::string sampled = "-n 24 -t 1.0 --seed 3 --samples 8 --batch 48";
  ASSERT_EQ(run(batch(kOtherHead, "ask.jsonl", "free.jsonl", sampled)).code, 0);
  ASSERT_EQ(
      run(batch(kOtherHead, "ask.jsonl", "never.jsonl", sampled + " --stop NEVERCOMES --stop '<|im|>'")).code,
      0);
  ASSERT_EQ(run(batch(kOtherHead, "ask.jsonl", "named.jsonl", sampled + " --stop '<|im_start|>'")).code, 0);
  std::map<std::pair<int64_t, int64_t>, Json> free;
  for (const Json& each : answers_in(folder() + "/free.jsonl"))
    free[{each.at("row").as_int(), each.at("sample").as_int()}] = each;
  ASSERT_EQ(free.size(), 48u);
  const auto of = [&](const Json& each) {
    return free.at({each.at("row").as_int(), each.at("sample").as_int()});
  };
  int special = 0, stopped = 0;
  for (const Json& each : answers_in(folder() + "/never.jsonl")) {
    EXPECT_EQ(each.at("ids"), of(each).at("ids"));
    EXPECT_EQ(each.at("text"), of(each).at("text"));
    special += each.at("text").as_string().find("<|") != std::string::npos ? 1 : 0;
  }
  EXPECT_GT(special, 0) << "no answer has a special token in its text: nothing was tried";
  for (const Json& each : answers_in(folder() + "/named.jsonl")) {
    const Json::Array &ids = each.at("ids").as_array(), all = of(each).at("ids").as_array();
    const auto named = std::find(all.begin(), all.end(), Json(281));
    if (named == all.end()) {
      EXPECT_EQ(each.at("ids"), of(each).at("ids"));
      continue;
    }
    ++stopped;
    EXPECT_EQ(ids, Json::Array(all.begin(), named + 1));
    EXPECT_EQ(each.at("finish").as_string(), "stop");
    const std::string text = each.at("text").as_string(), whole = of(each).at("text").as_string();
    EXPECT_EQ(text, whole.substr(0, whole.find("<|im_start|>")));
  }
  EXPECT_GT(stopped, 0);
}

TEST_F(Reports, StopStringsEndStreamedAnswersToo) {
  const std::string model = folder() + "/model", ask = " -n 40 -t 1 --seed 5 ";
  const std::string whole = run("generate " + model + " -p hello -q" + ask).out;
  const auto letter = std::find_if(whole.begin() + 4, whole.end(),
                                   [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; });
  ASSERT_NE(letter, whole.end()) << whole;
  const std::string stop(1, *letter), before = whole.substr(0, whole.find(stop)) + "\n";
  EXPECT_EQ(run("generate " + model + " -p hello -q" + ask + "--stop " + stop).out, before);
  EXPECT_EQ(run("chat " + model + ask + "--stop " + stop, "hello\n").out, before);
  expect_refused("generate " + model + " -p hello --stop ''", 2, "[--stop] is empty");
}

// transformers and numpy give 5.82120 for the tied head, and 5.97293 for the file's.
TEST_F(Reports, AHeadBesideATiedEmbeddingIsUsedAndSaved) {
  const std::string rows = std::string(kOtherHead) + "/seq.jsonl";
  const auto loss_of = [&](const std::string& model, const std::string& more = "") {
    return run("eval --model.path " + model + " --data.eval " + rows + " --data.max_length 256" + more);
  };
  const Outcome first = loss_of(kOtherHead);
  EXPECT_NE(first.err.find("the files hold another 'lm_head.weight'"), std::string::npos) << first.err;
  EXPECT_NEAR(losses_of(first)[kOtherHead], 5.97293, 1e-5);
  // Saved by a run that changes nothing, on one rank and on two that divide the vocabulary.
  const std::string train =
      "train --model.path " + std::string(kOtherHead) + " --data.train " + rows +
      " --data.max_length 256 --train.steps 1 --train.rows_per_step 2 --train.optimizer.lr 1e-30 --output ";
  for (const char* ranks : {"", " --ranks 2 --parallel.tensor 2"}) {
    const std::string out = folder() + (*ranks == 0 ? "/head" : "/heads");
    const Outcome trained = run(train + out + ranks);
    ASSERT_EQ(trained.code, 0) << trained.err;
    EXPECT_NEAR(metrics(out).front().at("loss").as_double(), 5.97293, 1e-5);
    const Outcome saved = loss_of(out + "/model");
    EXPECT_EQ(saved.err.find("warning"), std::string::npos) << saved.err;
    EXPECT_NEAR(losses_of(saved)[out + "/model"], 5.97293, 1e-5);
  }
}

// An answer that ends with another token than the model stops at: reported, trained on, and a stop token from
// then on.
TEST_F(Reports, AnEndThatGenerationDoesNotKnowIsReportedAndSaved) {
  const std::string base = model_that_stops_at("base", 273);
  write_file(
      folder() + "/one.jsonl",
      R"({"messages": [{"role": "user", "content": "Say it."}, {"role": "assistant", "content": "ok"}]})"
      "\n");
  write_file(folder() + "/say.jsonl", R"({"prompt": [{"role": "user", "content": "Say it."}]})"
                                      "\n");
  const std::string said =
      "the end is '<|im_end|>' (id 275), but generation stops at '<|endoftext|>' (id 273)";
  const auto train = [&](const std::string& model, const std::string& out, const std::string& more) {
    const Outcome outcome = run("train --model.path " + model + " --data.train " + folder() +
                                "/one.jsonl --data.max_length 64 --train.rows_per_step 1 --output " +
                                folder() + "/" + out + " " + more);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.err;
  };
  const auto ends = [&](const std::string& model, const std::string& out, const std::string& more) {
    const Outcome outcome = run(batch(model, "say.jsonl", out, "--greedy -n 12 " + more));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    const Json answer = answers_in(folder() + "/" + out).at(0);
    EXPECT_EQ(answer.at("text").as_string(), "ok");
    EXPECT_EQ(answer.at("finish").as_string(), "stop");
  };
  const std::string fast = "--train.steps 40 --train.optimizer.lr 3e-3";
  EXPECT_NE(train(base, "taught", fast).find(said), std::string::npos);
  const std::string taught = folder() + "/taught/model";
  EXPECT_EQ(Json::parse_file(taught + "/generation_config.json").at("eos_token_id"), (Json::Array{273, 275}));
  ends(taught, "taught.jsonl", "");
  // What was saved knows it.
  EXPECT_EQ(train(taught, "again", "--train.steps 1").find("the end is"), std::string::npos);

  EXPECT_NE(
      train(base, "lora", "--train.steps 60 --train.optimizer.lr 2e-2 --adapters '[{name: a, rank: 8}]'")
          .find(said),
      std::string::npos);
  const std::string adapter = folder() + "/lora/adapters/a/adapter", merged = folder() + "/lora_merged";
  ends(base, "adapted.jsonl", "--adapter " + adapter);
  ASSERT_EQ(run("merge " + adapter + " " + merged).code, 0);
  ends(merged, "merged.jsonl", "");
  // The folder of a run of adapters says how it is used.
  expect_refused("generate " + folder() + "/lora -p x", 2,
                 "it trained an adapter: name its base model's folder, " + base +
                     ", and the adapter with --adapter " + adapter);
}

// Rewards are of texts: equal ids have equal ones. And rollouts should end where the template ends answers.
TEST_F(Reports, StopStringsChangeNoRewardOfEqualIds) {
  std::string rows;
  for (int i = 0; i < 8; ++i)
    rows += fmt::format(R"({{"prompt": "{}+"}})"
                        "\n",
                        i);
  write_file(folder() + "/asked.jsonl", rows);
  const auto train = [&](const std::string& model, const std::string& file, const std::string& out,
                         const std::string& stop) {
    write_file(folder() + "/grpo.yaml", "recipe: grpo\nmodel: {path: " + model + "}\ndata: {train: [" +
                                            folder() + "/" + file +
                                            "], max_length: 64}\ngrpo:\n  group_size: 8\n  "
                                            "prompts_per_rollout: 8\n  sampling: {max_new_tokens: 24" +
                                            stop +
                                            "}\n  rewards: [{type: pattern, pattern: '<\\|im_'}]\n"
                                            "train: {steps: 1, optimizer: {lr: 1e-9}}\n");
    const Outcome outcome = run("train " + folder() + "/grpo.yaml --output " + folder() + "/" + out);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.err;
  };
  train(kOtherHead, "asked.jsonl", "rewarded", "");
  train(kOtherHead, "asked.jsonl", "rewarded_never", ", stop: [NEVERCOMES]");
  const std::vector<Json> free = answers_in(folder() + "/rewarded/rollouts.jsonl"),
                          never = answers_in(folder() + "/rewarded_never/rollouts.jsonl");
  ASSERT_EQ(free.size(), 64u);
  ASSERT_EQ(never.size(), 64u);
  double rewards = 0;
  for (size_t i = 0; i < free.size(); ++i) {
    for (const char* key : {"text", "reward", "finish"}) EXPECT_EQ(free[i].at(key), never[i].at(key)) << i;
    rewards += free[i].at("reward").as_double();
  }
  EXPECT_GT(rewards, 0) << "no answer has a special token: nothing was tried";

  const std::string other = model_that_stops_at("other_end", 273),
                    named = "For rollouts write grpo.sampling.stop: ['<|im_end|>']";
  write_file(folder() + "/chats.jsonl", R"({"prompt": [{"role": "user", "content": "Say it."}]})"
                                        "\n");
  EXPECT_NE(train(other, "chats.jsonl", "endless_rollouts", "").find(named), std::string::npos);
  EXPECT_EQ(train(other, "chats.jsonl", "ended", ", stop: ['<|im_end|>']").find("would not end"),
            std::string::npos);
}

TEST_F(Reports, AnswersThatNothingEndsAreReported) {
  const std::string endless = model_that_stops_at("endless", {});
  write_file(folder() + "/completion.jsonl", R"({"prompt": "1+1=", "completion": "2"})"
                                             "\n");
  const Outcome outcome =
      run("train --model.path " + endless + " --data.train " + folder() +
          "/completion.jsonl --data.max_length 64 --train.steps 1 --output " + folder() + "/endless_run");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find(
                "in 1 of 1 answers that were looked at no special token ends the answer, and the model "
                "has no stop token"),
            std::string::npos)
      << outcome.err;
}

TEST_F(Reports, AdaptersAreEvaluated) {
  const std::string list =
      "  - {name: q, rank: 4, lr: 2e-2}\n  - {name: d, rank: 2, target_modules: [down_proj]}\n";
  const std::string config = folder() + "/two.yaml", out = folder() + "/two", model = folder() + "/model";
  write_file(config, read_file(yaml()) + "adapters:\n" + list);
  const std::string data = " --data.eval [" + folder() + "/eval.jsonl] --output " + out;
  expect_refused("eval --model.path " + model, 2, "[data.eval] is missing; name the files to evaluate on");
  expect_refused("eval " + config + data, 2, "is not there; train it first (temper train), or name a folder");
  ASSERT_EQ(run("train " + config + data).code, 0);
  std::map<std::string, double> found = losses_of(run("eval " + config + data));
  ASSERT_EQ(found.size(), 2u);
  const auto folder_of = [&](const std::string& name) { return out + "/adapters/" + name + "/adapter"; };
  const std::string plain =
      "eval --model.path {} --data.max_length 64 --data.eval " + folder() + "/eval.jsonl";
  const auto of_model = [&](const std::string& path) {
    std::string command = plain;
    command.replace(command.find("{}"), 2, path);
    return command;
  };
  for (const std::string name : {"q", "d"}) {  // the same as merged into a model
    const std::string merged = folder() + "/merged_" + name;
    ASSERT_EQ(run("merge " + folder_of(name) + " " + merged).code, 0);
    EXPECT_NEAR(found[name], losses_of(run(of_model(merged)))[merged], 2e-5);
  }
  EXPECT_GT(std::abs(found["q"] - found["d"]), 1e-3);
  std::map<std::string, double> given =
      losses_of(run(of_model(model) + " --adapter x=" + folder_of("q") + " --adapter " + folder_of("d") +
                    " --adapter none --beside " + folder() + "/merged_q"));
  EXPECT_EQ(given.size(), 4u);
  EXPECT_EQ(given["x"], found["q"]);
  EXPECT_EQ(given["d"], found["d"]);
  EXPECT_EQ(given["none"], losses_of(run(of_model(model)))[model]);
  EXPECT_NEAR(given[folder() + "/merged_q"], found["q"], 2e-5);
}

// Of a run there are two models, and none of them is meant more than the other.
TEST_F(Reports, ARunsModelIsChosenForItsEvaluation) {
  const std::string out = folder() + "/chosen", base = folder() + "/model";
  const std::string data = " --data.eval [" + folder() + "/eval.jsonl]";
  ASSERT_EQ(run("train " + yaml() + data + " --output " + out + " --train.steps 2").code, 0);
  const std::string message = "is the folder of a run, expected one of its models: write --model.path " +
                              out + "/model for the one that it trained, or --model.path " + base;
  expect_refused("eval " + out, 2, message);
  expect_refused("eval " + out + " --beside " + base, 2, message);
  const double trained = losses_of(run("eval " + out + " --model.path " + out + "/model"))[out + "/model"];
  const Outcome began = run("eval " + out + " --model.path=" + base),
                of_yaml = run("eval " + yaml() + data + " --output " + out);
  EXPECT_GT(losses_of(began)[base], trained);
  EXPECT_EQ(losses_of(of_yaml)[base], losses_of(began)[base]);
  const std::string line =
      "is the model that the run began from; the one that it trained is " + out + "/model";
  EXPECT_NE(of_yaml.err.find(line), std::string::npos) << of_yaml.err;
  EXPECT_EQ(began.err.find(line), std::string::npos) << began.err;
  std::filesystem::remove_all(out + "/model");
  expect_refused("eval " + out, 2, "is the folder of a run that has no model yet");
}

TEST_F(Reports, FilesOfAModelThatEndNowhereAreReported) {
  const std::string model = folder() + "/with_more", out = folder() + "/of_more";
  std::filesystem::copy(folder() + "/model", model);
  for (const char* name : {"pytorch_model.bin", "README.md", "LICENSE"}) write_file(model + "/" + name, "x");
  const Outcome trained =
      run("train " + yaml() + " --model.path " + model + " --train.steps 2 --output " + out);
  ASSERT_EQ(trained.code, 0) << trained.err;
  const std::vector<std::string> lines = {
      "[" + model + "] files with weights that are not read: 1 (pytorch_model.bin)\n",
      "[" + model +
          "] of its files 2 are not in the folder of the model that is saved: README.md, "
          "pytorch_model.bin\n"};
  for (const std::string& line : lines) {
    EXPECT_NE(trained.err.find(line), std::string::npos) << trained.err;
    EXPECT_EQ(trained.err.find(line), trained.err.rfind(line)) << trained.err;
  }
  EXPECT_EQ(read_file(out + "/model/LICENSE"), "x");
  EXPECT_EQ(run("generate " + out + "/model -p 1 -n 1").err.find("not read"), std::string::npos);
}

TEST_F(Reports, ALearningRateThatJumpsOnResumingIsReported) {
  const auto train = [&](const std::string& out, const std::string& more) {
    const Outcome outcome = run("train " + yaml() + " --output " + folder() + "/" + out + " " + more);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.err;
  };
  train("jump", "--train.steps 4 --train.schedule.final_fraction 0.25");
  EXPECT_NEAR(metrics(folder() + "/jump").back().at("lr").as_double(), 0.25e-3, 1e-9);  // the last update's
  const std::string longer = train("jump", "--train.steps 8 --train.schedule.final_fraction 0.25");
  EXPECT_NE(longer.find(
                "the learning rate jumps: update 5 would have had 0.00025 as the run was configured before, "
                "and has 0.000"),
            std::string::npos)
      << longer;
  const std::string constant = "--train.schedule.type constant --train.steps ";
  train("even", constant + "4");
  EXPECT_EQ(train("even", constant + "6").find("jumps"), std::string::npos);
}

}  // namespace
}  // namespace temper
