// Learning from preferences as a user has it: every loss, every reference, stopped and resumed, refused.
#include <cmath>

#include "base/hash.h"
#include "tests/cli/cli_fixture.h"

namespace temper {
namespace {

class PreferenceCli : public Cli {
 protected:
  // Fewer rows: reference passes are over all of them.
  static void SetUpTestSuite() {
    Cli::SetUpTestSuite();
    for (const char* name : {"pairs_train", "pairs_eval", "judged_train"}) {
      const std::string path = folder() + "/" + name + ".jsonl", rows = read_file(path);
      write_file(path, rows.substr(0, rows.find('\n', rows.size() / 40) + 1));
    }
  }
  static std::string configuration(const std::string& name, const std::string& more,
                                   const std::string& rows = "pairs") {
    const std::string path = folder() + "/" + name + ".yaml";
    write_file(path, "recipe: preference\nmodel: {path: " + folder() + "/model}\ndata:\n  train: [" +
                         folder() + "/" + rows + "_train.jsonl]\n  max_length: 48\n" +
                         "train: {steps: 8, rows_per_step: 2, optimizer: {lr: 1e-3}, "
                         "schedule: {type: constant}}\ncheckpoint: {every_steps: 3}\n" +
                         more);
    return path;
  }
  static std::string adapter() { return "adapters: [{name: a, rank: 4}]\n"; }

  static double number(const Json& line, const char* name) { return line.at(name).as_double(); }

  // The outcome must be good; the folder of what was trained.
  static std::string trained(const std::string& config, const std::string& name,
                             const std::string& flags = "") {
    const std::string out = folder() + "/" + name;
    const Outcome outcome = run("train " + config + " --output " + out + flags);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return exists(out + "/adapters/a") ? out + "/adapters/a" : out;
  }

  // Older versions stored one hash of the reference model's config.json and weights.
  static void as_an_older_version_wrote(const std::string& file, const std::string& model) {
    Hasher hasher;
    for (const std::string& name : list_directory(model)) {
      if (name != "config.json" && !name.ends_with(".safetensors")) continue;
      const std::string digest = name + hash_file(join_path(model, name));
      hasher.update(digest.data(), digest.size());
    }
    Json stored = Json::parse_file(file), from = Json::Object{};
    for (const auto& [key, value] : stored.at("computed_from").as_object())
      if (!key.starts_with("the reference model's ")) from.set(key, value);
    from.set("the reference model", hasher.digest());
    stored.set("computed_from", from);
    write_file(file, stored.dump());
  }
};

TEST_F(PreferenceCli, AWholeModelIsComparedWithWhatItWas) {
  const std::string config = configuration("whole", "");
  const std::string out = trained(config, "whole", " --data.eval [" + folder() + "/pairs_eval.jsonl]");
  const std::vector<Json> lines = metrics(out);
  ASSERT_EQ(lines.size(), 9u);  // 8 steps and an evaluation
  EXPECT_NEAR(number(lines[0], "loss"), std::log(2.0), 1e-5);
  EXPECT_LT(number(lines[7], "loss"), number(lines[0], "loss"));
  EXPECT_GT(number(lines[7], "reward_margin"), 0);
  EXPECT_NEAR(number(lines[7], "reward_margin"),
              number(lines[7], "reward_chosen") - number(lines[7], "reward_rejected"), 1e-9);
  EXPECT_GT(number(lines[8], "eval_reward_accuracy"), 0.9);
  EXPECT_LT(number(lines[8], "eval_logp_rejected"), 0);
  EXPECT_TRUE(exists(out + "/reference.safetensors"));
}

// One adapter's rows that KTO cannot judge do not affect the other adapters, and it keeps its trained
// weights.
TEST_F(PreferenceCli, AnUpdateOfOnePromptStopsOneAdapterOnly) {
  const std::string bad = folder() + "/one_prompt.jsonl";
  std::string rows;
  for (int i = 0; i < 12; ++i)
    rows += fmt::format("{{\"prompt\": \"{}\", \"completion\": \"{}\", \"label\": {}}}\n", i < 6 ? i : 6, i,
                        i % 2 == 0);
  write_file(bad, rows);
  const std::string config = configuration(
      "one_prompt",
      "preference: {loss: kto}\nadapters: [{name: good, rank: 2}, {name: sick, rank: 2, train: [" + bad +
          "]}]\n",
      "judged");
  int number = 0;
  for (const char* const ranks : {"", " --ranks 2 --parallel.tensor 2"}) {
    const std::string out = fmt::format("{}/one_prompt{}", folder(), number++);
    const Outcome outcome =
        run("train " + config + " --output " + out +
            " --data.shuffle false --data.packing none --checkpoint.every_steps 0" + ranks);
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    EXPECT_NE(outcome.err.find("[sick] KTO compares with answers to other prompts"), std::string::npos)
        << outcome.err;
    EXPECT_EQ(losses(out + "/adapters/good").size(), 8u);
    EXPECT_EQ(losses(out + "/adapters/sick").size(), 3u);
    EXPECT_TRUE(exists(out + "/adapters/sick/checkpoints/step-000003/manifest.json"));
  }
}

// Bit for bit, with the stored numbers of the first part.
TEST_F(PreferenceCli, AStoppedRunGoesOn) {
  for (const std::string& more : {std::string(), adapter()}) {
    const std::string name = more.empty() ? "resumed" : "resumed_adapter", config = configuration(name, more);
    const std::string once = trained(config, name + "_once");
    trained(config, name, " --train.steps 3");
    const std::string twice = trained(config, name);
    EXPECT_EQ(losses(twice), losses(once));
    const char* result = more.empty() ? "/model/model.safetensors" : "/adapter/adapter_model.safetensors";
    EXPECT_EQ(read_file(twice + result), read_file(once + result));
  }
}

TEST_F(PreferenceCli, ReferencesAgree) {
  const std::string config = configuration("references", adapter()), alone = " --data.packing none";
  const std::vector<Json> live = metrics(trained(config, "base", alone));
  for (const std::string& flags :
       {std::string(" --preference.precompute true"), " --preference.reference " + folder() + "/model",
        " --preference.reference " + folder() + "/model --preference.precompute true",
        std::string(" --preference.share_prompts false")}) {
    const std::vector<Json> other =
        metrics(trained(config, "other" + std::to_string(flags.size()), alone + flags));
    ASSERT_EQ(other.size(), live.size());
    for (size_t i = 0; i < live.size(); ++i)
      EXPECT_NEAR(number(other[i], "loss"), number(live[i], "loss"), 2e-4) << flags << ", step " << i;
  }
}

TEST_F(PreferenceCli, EveryLossTrains) {
  int count = 0;
  for (const char* keys :
       {"loss: ipo, beta: 0.1", "loss: orpo, lambda: 0.2",
        "length_normalized: true, reference_free: true, margin: 0.5, beta: 2", "label_smoothing: 0.1"}) {
    const std::string config = configuration("loss", adapter() + "preference: {" + keys + "}\n");
    const std::vector<Json> lines = metrics(trained(config, "loss" + std::to_string(++count)));
    EXPECT_LT(number(lines[7], "loss"), number(lines[0], "loss")) << keys;
  }
  for (const char* rows : {"judged", "pairs"}) {
    const std::string config = configuration("kto", adapter() + "preference: {loss: kto}\n", rows);
    const std::vector<Json> lines = metrics(trained(config, std::string("kto_") + rows));
    EXPECT_NEAR(number(lines[0], "loss"), 0.5, 1e-6);
    EXPECT_NEAR(number(lines[0], "kl"), 0, 1e-6);
    EXPECT_LT(number(lines[7], "loss"), 0.5);
    EXPECT_EQ(lines[7].find("reward_accuracy"), nullptr);
  }
  // A whole model needs a second one: nothing can be stored.
  const std::string whole = configuration("kto_whole", "preference: {loss: kto}\n", "judged");
  EXPECT_NEAR(number(metrics(trained(whole, "kto_whole", " --train.steps 2"))[0], "loss"), 0.5, 1e-6);
}

TEST_F(PreferenceCli, StaleNumbersAreRefused) {
  const std::string config = configuration("stale", "");
  const std::string out = trained(config, "stale", " --train.steps 2");
  const std::string again = "train " + config + " --output " + out;
  const std::string rows = read_file(folder() + "/pairs_train.jsonl");
  write_file(folder() + "/pairs_train.jsonl", rows.substr(rows.find('\n') + 1));
  expect_refused(again, 2,
                 "/reference.json] holds log-probabilities of a run with another value of data.train");
  write_file(folder() + "/pairs_train.jsonl", rows);
  const std::string settings = read_file(folder() + "/model/tokenizer_config.json");
  write_file(folder() + "/model/tokenizer_config.json", settings + "\n");
  expect_refused(again, 2, "another value of the chat template");
  write_file(folder() + "/model/tokenizer_config.json", settings);
  const std::string model = folder() + "/model/config.json", before = read_file(model);
  Json edited = Json::parse_file(model);
  edited.set("transformers_version", "0.0.0");
  write_file(model, edited.dump());
  const Outcome harmless = run(again);
  EXPECT_EQ(harmless.code, 0) << harmless.err;
  remove_all(out + "/checkpoints");
  edited.set("rms_norm_eps", 0.5);
  write_file(model, edited.dump());
  expect_refused(again, 2, "another value of the reference model's rms_norm_eps (was 1e-06, is 0.5)");
  write_file(model, before);
  const std::string reference = read_file(out + "/reference.json");
  for (const Json& value : {Json(), Json(3)}) {
    Json stored = Json::parse_file(out + "/reference.json"), from = stored.at("computed_from");
    from.set("an older word", value);
    stored.set("computed_from", from);
    write_file(out + "/reference.json", stored.dump());
    expect_refused(
        again, 2,
        "another value of an older word (was " + value.dump() +
            ", is absent); restore that, choose another output, or delete the file to compute them again");
  }
  write_file(out + "/reference.json", reference);
  as_an_older_version_wrote(out + "/reference.json", folder() + "/model");
  const Outcome older = run(again);
  EXPECT_EQ(older.code, 0) << older.err;
  write_file(out + "/reference.safetensors", read_file(out + "/reference.safetensors") + " ");
  expect_refused(again, 2, "/reference.safetensors] is not what was stored; delete");
  std::remove((out + "/reference.json").c_str());
  EXPECT_EQ(run(again).code, 0);

  const std::string frozen = configuration("stale_frozen", adapter() + "preference: {precompute: true}\n");
  const std::string frozen_run = trained(frozen, "stale_frozen", " --train.steps 2");
  remove_all(frozen_run + "/checkpoints");
  expect_refused(
      "train " + frozen + " --output " + folder() + "/stale_frozen --model.base_dtype float8_e4m3fn", 2,
      "another value of model.dtype (was \"float32\", is \"float32, its linears in float8_e4m3fn\")");
}

// One row is not enough for KTO, and it is what an update's time is measured with first.
TEST_F(PreferenceCli, ADryRunEstimatesTheTimeOfKto) {
  const std::string config = configuration("kto_dry", adapter() + "preference: {loss: kto}\n", "judged");
  const Outcome dry =
      run("train " + config + " --output " + folder() + "/kto_dry --data.packing none --dry-run");
  EXPECT_EQ(dry.code, 0) << dry.err;
  EXPECT_NE(dry.out.find("time           about "), std::string::npos) << dry.out;
}

TEST_F(PreferenceCli, BadRowsNameTheirPlace) {
  const auto refused = [](const std::string& row, const std::string& message) {
    write_file(folder() + "/bad.jsonl", R"({"prompt": "1 + 1 = ", "chosen": "2", "rejected": "3"})"
                                        "\n" +
                                            row + "\n");
    expect_refused("train " + configuration("bad", "") + " --output " + folder() + "/bad --data.train [" +
                       folder() + "/bad.jsonl] --data.packing none",
                   2, folder() + "/bad.jsonl:2] " + message);
  };
  refused(R"({"prompt": "1 + 1 = ", "chosen": "2"})", "rejected is missing although chosen is present");
  refused(R"({"prompt": "1 + 1 = ", "chosen": "2", "rejected": "2"})", "chosen and rejected are the same");
  refused(R"({"prompt": "1 + 1 = ", "chosen": "", "rejected": "2"})", "chosen is empty, expected an answer");
  refused(R"({"text": "1 + 1 = 2"})", "the row is of format text, this loss compares two answers");
}

TEST_F(PreferenceCli, KeysThatMakeNoSenseAreRefused) {
  const auto refused = [](const std::string& flags, const std::string& message) {
    expect_refused("train " + configuration("keys", adapter()) + " --output " + folder() + "/keys " + flags,
                   2, message);
  };
  refused("--preference.loss orpo --preference.beta 0.2",
          "[preference.beta] is read by dpo, ipo and kto only");
  refused("--preference.loss ipo --preference.label_smoothing 0.2", "[preference.label_smoothing]");
  refused("--preference.reference_free true --preference.reference x", "the loss has no reference");
  refused("--preference.loss kto --preference.precompute true", "[preference.precompute] is true, but kto");
  refused("--preference.reference " + folder() + "/nowhere", "/nowhere' is not a folder");
  refused("--preference.beta 0", "preference.beta");
  refused("--data.loss all", "[data.loss] is all");
  refused("--data.overflow split", "[data.overflow] is split");
  refused("--train.z_loss 1e-4", "[train.z_loss]");
}

TEST_F(PreferenceCli, SftReadsNoneOfItsKeys) {
  const auto refused = [](const std::string& flags, const std::string& message) {
    expect_refused("train " + yaml() + " --output " + folder() + "/keys " + flags, 2, message);
  };
  refused("--preference.beta 0.2",
          "[preference.beta] is read by recipe preference only; leave it out, or set recipe: preference");
  refused("--preference.loss orpo", "[preference.loss]");
  refused("--preference.precompute false", "[preference.precompute]");
  // Rows are shown as a run would read them: of a run that is refused there are none.
  expect_refused("data inspect " + yaml() + " --preference.share_prompts false", 2,
                 "[preference.share_prompts] is read by recipe preference only; leave it out, or set");
}

TEST_F(PreferenceCli, AReferenceReadsTheSameTokens) {
  const std::string other = folder() + "/other_tokens";
  make_directories(other);
  for (const std::string& name : list_directory(folder() + "/model"))
    write_file(other + "/" + name, read_file(folder() + "/model/" + name));
  const auto change = [&](const std::string& file, const std::string& from, const std::string& to) {
    std::string text = read_file(other + "/" + file);
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos);
    write_file(other + "/" + file, text.replace(at, from.size(), to));
  };
  const std::string command = "train " + configuration("tokens", adapter()) + " --output " + folder() +
                              "/tokens --preference.reference " + other;
  change("tokenizer.json", "<|im_start|>", "<|im_begin|>");
  expect_refused(command, 2, "has another vocabulary: token 274 is '<|im_begin|>' there and '<|im_start|>'");
  change("config.json", "\"vocab_size\": 320", "\"vocab_size\": 336");
  expect_refused(command, 2,
                 "has a vocabulary of 336 tokens, the model has 320; a reference must read the same");
}

TEST_F(PreferenceCli, InspectShowsBothAnswers) {
  const Outcome outcome = run("data inspect " + configuration("inspect", "") + " --rows 1");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("chosen"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("rejected"), std::string::npos) << outcome.out;
  EXPECT_EQ(outcome.out.find("bad"), std::string::npos) << outcome.out;
}

}  // namespace
}  // namespace temper
