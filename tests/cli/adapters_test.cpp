// Adapters as a user has them: trained alone and together, stopped and resumed, used, merged, refused.
#include <filesystem>

#include "checkpoints/files/safetensors.h"
#include "tests/cli/cli_fixture.h"

namespace temper {
namespace {

class AdapterCli : public Cli {
 protected:
  static std::string adapters(const std::string& list) { return " --adapters '" + list + "'"; }
  static std::string folder_of(const std::string& out, const std::string& name) {
    return out + "/adapters/" + name;
  }
  static std::string weights(const std::string& out, const std::string& name) {
    return read_file(folder_of(out, name) + "/adapter/adapter_model.safetensors");
  }
  // A run's configuration with these adapters, by line.
  static std::string with_adapters(const std::string& name, const std::string& list) {
    const std::string path = folder() + "/" + name + ".yaml";
    write_file(path, read_file(yaml()) + "adapters:\n" + list);
    return path;
  }
};

TEST_F(AdapterCli, AnAdapterIsTrainedUsedAndMerged) {
  const std::string out = folder() + "/one";
  const std::string config = with_adapters(
      "one",
      "  - {name: sums, rank: 4, alpha: 8, dropout: 0.1, lr: 2e-2, target_modules: [q_proj, down_proj]}\n");
  const Outcome outcome = run("train " + config + " --output " + out + " --data.eval [" + folder() +
                              "/eval.jsonl] --eval.exact_match 2");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  for (const char* name : {"config.yaml", "metrics.jsonl", "loss.svg", "summary.json",
                           "adapter/adapter_config.json", "adapter/adapter_model.safetensors",
                           "best/adapter_config.json", "checkpoints/step-000012/manifest.json"})
    EXPECT_TRUE(exists(join_path(folder_of(out, "sums"), name))) << name;
  EXPECT_EQ(losses(folder_of(out, "sums")).size(), 12u);
  const checkpoints::SafetensorsFile state(folder_of(out, "sums") +
                                           "/checkpoints/step-000012/optimizer.safetensors");
  for (const auto& entry : state.entries())
    EXPECT_NE(entry.name.find("lora_"), std::string::npos) << "the frozen model has no state: " << entry.name;

  const std::string adapter = folder_of(out, "sums") + "/adapter", model = folder() + "/model";
  const std::string ask = " -p 'What is 10 + 10?' -n 6 --greedy -q";
  const Outcome merged = run("merge " + adapter + " " + folder() + "/merged");
  ASSERT_EQ(merged.code, 0) << merged.err;
  const std::string with = run("generate " + model + ask + " --adapter " + adapter).out,
                    alone = run("generate " + model + ask).out;
  EXPECT_NE(with, alone);
  EXPECT_EQ(run("generate " + folder() + "/merged" + ask).out, with);
  EXPECT_EQ(run("generate " + model + ask + " --adapter a=" + folder_of(out, "sums") + " --adapter none").out,
            "[a]\n" + with + "[none]\n" + alone);
  const std::string question = "What is 10 + 10?\n";
  const Outcome chat =
      run("chat " + model + " -n 6 --greedy --adapter " + out,  // a run with one adapter
          question + "/adapter none\n/clear\n" + question + "/adapter sums\n/clear\n" + question);
  EXPECT_EQ(chat.out, with + alone + with) << chat.err;
}

TEST_F(AdapterCli, SeveralAreTrainedAsIfEachWereAlone) {
  const std::string first = "  - {name: a, rank: 2, lr: 1e-2, steps: 5, seed: 7}\n",
                    second = "  - {name: b, rank: 3, target_modules: [v_proj], rows_per_step: 2, train: [" +
                             folder() + "/eval.jsonl], dropout: 0.2}\n";
  // Micro-batches of one row hold one adapter's rows: then the bits are the same.
  const std::string flags = " --train.micro_batch_tokens 1 --output " + folder();
  ASSERT_EQ(run("train " + with_adapters("both", first + second) + flags + "/both").code, 0);
  ASSERT_EQ(run("train " + with_adapters("first", first) + flags + "/first").code, 0);
  ASSERT_EQ(run("train " + with_adapters("second", second) + flags + "/second").code, 0);
  EXPECT_EQ(weights(folder() + "/both", "a"), weights(folder() + "/first", "a"));
  EXPECT_EQ(weights(folder() + "/both", "b"), weights(folder() + "/second", "b"));
  EXPECT_EQ(losses(folder_of(folder() + "/both", "a")).size(), 5u);
  EXPECT_EQ(losses(folder_of(folder() + "/both", "b")), losses(folder_of(folder() + "/second", "b")));
}

// One is added, one continues, one is left out: by the list of the next command.
TEST_F(AdapterCli, ARunGoesOnWithOtherAdapters) {
  const std::string a = "  - {name: a, rank: 2, dropout: 0.1}\n", b = "  - {name: b, rank: 3}\n",
                    c = "  - {name: c, rank: 4}\n";
  const std::string whole = folder() + "/whole_a", parts = folder() + "/parts_abc";
  const std::string flags = " --train.micro_batch_tokens 1 --output ";
  ASSERT_EQ(run("train " + with_adapters("a", a) + flags + whole + " --train.schedule.type constant").code,
            0);
  ASSERT_EQ(run("train " + with_adapters("ab", a + b) + flags + parts +
                " --train.schedule.type constant --train.steps 5")
                .code,
            0);
  const std::string b_before = weights(parts, "b");
  ASSERT_EQ(
      run("train " + with_adapters("ac", a + c) + flags + parts + " --train.schedule.type constant").code, 0);
  EXPECT_EQ(weights(parts, "a"), weights(whole, "a"));
  EXPECT_EQ(losses(folder_of(parts, "a")), losses(folder_of(whole, "a")));
  EXPECT_EQ(losses(folder_of(parts, "c")).size(), 12u);
  EXPECT_EQ(weights(parts, "b"), b_before);
}

// The model in 8 or 4 bits: stopped and resumed bit for bit, used so, merged into the model as it is.
TEST_F(AdapterCli, ANarrowBaseIsTrainedResumedAndUsed) {
  for (const std::string format : {"float8_e4m3fn", "nf4", "nf4_double"}) {
    const std::string whole = folder() + "/narrow_" + format, parts = folder() + "/narrow_parts_" + format;
    const std::string command = "train " +
                                with_adapters("narrow", "  - {name: a, rank: 4, lr: 2e-2, dropout: 0.1}\n") +
                                " --model.base_dtype " + format + " --train.schedule.type constant --output ";
    const Outcome outcome = run(command + whole + " --explain-memory");
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_NE(outcome.err.find("in float32, its linears in " + format), std::string::npos) << outcome.err;
    ASSERT_EQ(run(command + parts + " --train.steps 5").code, 0);
    ASSERT_EQ(run(command + parts).code, 0);
    EXPECT_EQ(weights(parts, "a"), weights(whole, "a"));
    EXPECT_EQ(losses(folder_of(parts, "a")), losses(folder_of(whole, "a")));
    const std::string wide = "train " + folder() + "/narrow.yaml --train.schedule.type constant --output ";
    expect_refused(wide + parts, 2, "model.base_dtype: \"" + format + "\", now null");
    ASSERT_EQ(run(wide + folder() + "/not_narrow_" + format).code, 0);
    EXPECT_NE(weights(folder() + "/not_narrow_" + format, "a"), weights(whole, "a"));
    const std::string adapter = folder_of(whole, "a") + "/adapter",
                      with = " " + folder() + "/model --base-dtype " + format + " -n 6 --greedy --adapter " +
                             adapter;
    const Outcome answer = run("generate" + with + " -q -p 'What is 10 + 10?'");
    EXPECT_EQ(answer.code, 0) << answer.err;
    EXPECT_EQ(run("chat" + with, "What is 10 + 10?\n").out, answer.out);
    EXPECT_EQ(run("merge " + adapter + " " + folder() + "/narrow_merged_" + format).code, 0);
  }
}

TEST_F(AdapterCli, ABaseIn8BitsIsForAdaptersOnly) {
  expect_refused("train " + yaml() + " --output " + folder() + "/whole8 --model.base_dtype float8_e4m3fn", 2,
                 "[model.base_dtype] is float8_e4m3fn, which cannot be trained, but there are no adapters");
  expect_refused("train " + with_adapters("eight", "  - {rank: 2}\n") + " --model.base_dtype int8", 2,
                 "float8_e4m3fn");
  expect_refused("generate " + folder() + "/model -p x --base-dtype int4", 2,
                 "[--base-dtype] 'int4' is not supported; use float8_e4m3fn");
}

TEST_F(AdapterCli, BadDataStopsOneAdapterOnly) {
  const std::string bad = folder() + "/ends_badly.jsonl", out = folder() + "/survivors";
  std::string rows = read_file(folder() + "/eval.jsonl");
  size_t end = 0;
  for (int i = 0; i < 30; ++i) end = rows.find('\n', end) + 1;
  write_file(bad, rows.substr(0, end) + "{\"question\": 1}\n");
  const std::string config = with_adapters(
      "survivors", "  - {name: good, rank: 2}\n  - {name: bad, rank: 2, train: [" + bad + "]}\n");
  const std::string command =
      "train " + config + " --output " + out + " --data.shuffle false --data.packing none";
  const Outcome outcome = run(command);
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  EXPECT_NE(outcome.err.find("this adapter stops, the others continue"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("ends_badly.jsonl:31"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("1 of 2 stopped early, the others are done"), std::string::npos) << outcome.err;
  EXPECT_EQ(losses(folder_of(out, "good")).size(), 12u);
  const size_t done = losses(folder_of(out, "bad")).size();
  EXPECT_GT(done, 0u);
  EXPECT_LT(done, 12u);
  EXPECT_TRUE(exists(folder_of(out, "bad") + "/adapter/adapter_model.safetensors"));
  EXPECT_TRUE(Json::parse_file(folder_of(out, "bad") + "/summary.json").at("stopped").is_string());
  // With another way to take such rows it resumes where it stopped, and also when the row is corrected in
  // its place.
  const std::string copy = folder() + "/survivors_again";
  std::filesystem::copy(out, copy, std::filesystem::copy_options::recursive);
  EXPECT_EQ(run(command + " --data.on_bad_row skip").code, 0);
  EXPECT_EQ(losses(folder_of(out, "bad")).size(), 12u);
  const std::string again =
      "train " + config + " --output " + copy + " --data.shuffle false --data.packing none";
  write_file(bad, rows.substr(0, end));
  expect_refused(again, 2, "[adapters.bad] [data] cannot resume with other data (rows: 31 before, 30 now)");
  write_file(bad, rows.substr(0, rows.find('\n', end) + 1));
  const Outcome mended = run(again);
  EXPECT_EQ(mended.code, 0) << mended.err;
  EXPECT_EQ(losses(folder_of(copy, "bad")).size(), 12u);
}

TEST_F(AdapterCli, ADivergedAdapterLeavesNoWeights) {
  const std::string out = folder() + "/diverged";
  const Outcome outcome = run("train " +
                              with_adapters("diverged",
                                            "  - {name: good, rank: 2}\n"
                                            "  - {name: wild, rank: 2, lr: 1e30}\n") +
                              " --output " + out);
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  EXPECT_NE(outcome.err.find("[wild] the loss is"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("give the adapter another name"), std::string::npos) << outcome.err;
  EXPECT_TRUE(exists(folder_of(out, "good") + "/adapter"));
  EXPECT_FALSE(exists(folder_of(out, "wild") + "/adapter"));
  EXPECT_EQ(Json::parse_file(folder_of(out, "wild") + "/summary.json").find("adapter"), nullptr);
}

// Other weights of the same shapes at the base's path.
TEST_F(AdapterCli, AnotherBaseAtTheSamePathIsRefused) {
  const std::string base = folder() + "/base", out = folder() + "/rebased";
  std::filesystem::copy(folder() + "/model", base);
  const std::string command = "train " + with_adapters("rebased", "  - {rank: 2}\n") + " --model.path " +
                              base + " --output " + out + " --train.steps ";
  ASSERT_EQ(run(command + "2").code, 0);
  std::string weights = read_file(base + "/model.safetensors");
  weights[weights.size() - 5] ^= 1;
  write_file(base + "/model.safetensors", weights);
  expect_refused(command + "4", 2, "was trained on other weights than " + base + " holds now");
}

TEST_F(AdapterCli, AnAdapterGoesOnFromAFolder) {
  const std::string out = folder() + "/start", on = folder() + "/goes_on";
  ASSERT_EQ(run("train " + with_adapters("start", "  - {rank: 2, lr: 1e-2}\n") + " --output " + out).code, 0);
  const std::string from = folder_of(out, "adapter") + "/adapter";
  ASSERT_EQ(run("train " + with_adapters("on", "  - {from: " + from + ", lr: 1e-9}\n") + " --output " + on +
                " --train.steps 1")
                .code,
            0);
  const checkpoints::SafetensorsFile before(from + "/adapter_model.safetensors"),
      after(folder_of(on, "adapter") + "/adapter/adapter_model.safetensors");
  ASSERT_EQ(before.entries().size(), after.entries().size());
  for (const auto& entry : before.entries()) {
    const auto was = before.tensor(entry.name).values<float>(), is = after.tensor(entry.name).values<float>();
    for (size_t i = 0; i < was.size(); ++i) ASSERT_NEAR(is[i], was[i], 1e-6) << entry.name;
  }
  expect_refused(
      "train " + with_adapters("on2", "  - {from: " + from + ", rank: 4}\n") + " --output " + on + "2", 2,
      "[adapters.adapter.from] " + from + " decides which modules are adapted; remove: rank");
}

// A run reads the folder once: what happens to it later changes nothing.
TEST_F(AdapterCli, ARunKeepsWhatItsAdapterBeganFrom) {
  const std::string out = folder() + "/source", from = folder() + "/source_copy";
  const auto train = [&](const std::string& name, const std::string& list) {
    return run("train " + with_adapters("source", list) + " --output " + out + name + " --train.steps 2");
  };
  const auto settings = [](const std::string& adapter) {
    return read_file(adapter + "/adapter_config.json");
  };
  const std::string on = "  - {from: " + from + "}\n";
  ASSERT_EQ(train("", "  - {rank: 2, alpha: 8}\n").code, 0);
  ASSERT_EQ(train("_other", "  - {rank: 4, alpha: 80}\n").code, 0);
  std::filesystem::copy(folder_of(out, "adapter") + "/adapter", from);
  ASSERT_EQ(train("_on", on).code, 0);
  const std::string was = settings(folder_of(out + "_on", "adapter") + "/adapter"),
                    trained = weights(out + "_on", "adapter");
  remove_all(from);
  std::filesystem::copy(folder_of(out + "_other", "adapter") + "/adapter", from);
  for (int i = 0; i < 2; ++i) {
    const Outcome again = train("_on", on);
    EXPECT_EQ(again.code, 0) << again.err;
    EXPECT_EQ(settings(folder_of(out + "_on", "adapter") + "/adapter"), was);
    EXPECT_EQ(weights(out + "_on", "adapter"), trained);
    remove_all(from);
  }
}

// A file of held-out rows, or what the reference is asked, is read before the first step.
TEST_F(AdapterCli, AnAdapterThatCannotBeginStopsNobody) {
  const std::string bad = folder() + "/bad_eval.jsonl", out = folder() + "/begins";
  write_file(bad, "{\"question\": 1}\n");
  const Outcome outcome =
      run("train " +
          with_adapters("begins", "  - {name: good, rank: 2}\n  - {name: bad, rank: 2, train: [" + folder() +
                                      "/train.jsonl], eval: [" + bad + "]}\n") +
          " --output " + out + " --train.steps 3 --eval.every_steps 3");
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  EXPECT_NE(outcome.err.find("this adapter does not start, the others continue"), std::string::npos)
      << outcome.err;
  EXPECT_NE(
      outcome.err.find("1 of 2 stopped early, the others are done:\n  bad did not start: [adapters.bad]"),
      std::string::npos)
      << outcome.err;
  EXPECT_EQ(losses(folder_of(out, "good")).size(), 3u);
}

TEST_F(AdapterCli, OneProcessAtATimeTrainsInAFolder) {
  const std::string out = folder() + "/taken",
                    command = "train " + yaml() + " --train.steps 1 --output " + out;
  make_directories(out);
  {
    const FolderLock other(out);
    expect_refused(command, 2, "[" + out + "] another process is at work there");
  }
  EXPECT_EQ(run(command).code, 0);
}

TEST_F(AdapterCli, AnotherTokenizerOrTemplateIsRefusedOnTheWayOn) {
  const std::string base = folder() + "/worded", out = folder() + "/reworded";
  std::filesystem::copy(folder() + "/model", base);
  for (const std::string& adapters : {std::string(), std::string("  - {rank: 2}\n")}) {
    const std::string name = adapters.empty() ? "whole" : "adapter";
    const std::string config = adapters.empty() ? yaml() : with_adapters("reworded", adapters);
    const std::string command =
        "train " + config + " --model.path " + base + " --output " + out + name + " --train.steps ";
    ASSERT_EQ(run(command + "2").code, 0);
    const std::string file = base + "/tokenizer_config.json",
                      before = exists(file) ? read_file(file) : std::string("{}");
    write_file(file, before + "\n");
    expect_refused(command + "4", 2, "started with another " + file);
    write_file(file, before);
  }
}

TEST_F(AdapterCli, WhatNothingMatchesInPeftsFileIsOneWarningEach) {
  const std::string out = folder() + "/strangers", adapter = folder_of(out, "adapter") + "/adapter";
  ASSERT_EQ(run("train " + with_adapters("strangers", "  - {rank: 2, target_modules: [q_proj]}\n") +
                " --output " + out + " --train.steps 1")
                .code,
            0);
  Json config = Json::parse_file(adapter + "/adapter_config.json");
  config.set("alpha_pattern", Json::Object{{"v_proj", 4}});
  remove_all(adapter + "/adapter_config.json");
  write_file(adapter + "/adapter_config.json", config.dump());
  const std::string train =
      "train " + with_adapters("strangers_on", "  - {from: " + adapter + "}\n") + " --output " + out;
  for (const std::string& command :
       {"generate " + folder() + "/model -n 1 -p x --adapter " + adapter,
        "merge " + adapter + " " + out + "/merged", train + "2 --train.steps 1", train + "3 --dry-run"}) {
    const Outcome outcome = run(command);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    const std::string warning =
        "warning: [" + adapter + "/adapter_config.json] no adapted module matches 'v_proj' (alpha_pattern)\n";
    const size_t first = outcome.err.find(warning);
    ASSERT_NE(first, std::string::npos) << command << "\n" << outcome.err;
    EXPECT_EQ(outcome.err.find("no adapted module matches", first + warning.size()), std::string::npos)
        << command;
  }
}

TEST_F(AdapterCli, AStoppedRunOfAdaptersIsCheckedBeforeItGoesOn) {
  const std::string out = folder() + "/other_shape";
  ASSERT_EQ(
      run("train " + with_adapters("shape", "  - {rank: 2}\n") + " --output " + out + " --train.steps 2")
          .code,
      0);
  expect_refused("train " + with_adapters("shape2", "  - {rank: 4}\n") + " --output " + out, 2,
                 "adapters[0].rank: 2, now 4");
  expect_refused("train " + with_adapters("shape2", "  - {rank: 4}\n") + " --output " + out + " --dry-run", 2,
                 "adapters[0].rank: 2, now 4");
  const Outcome dry =
      run("train " + with_adapters("shape3", "  - {rank: 2}\n") + " --output " + out + " --dry-run");
  EXPECT_EQ(dry.code, 0) << dry.err;
  EXPECT_NE(dry.out.find("adapter: 21 adapted modules"), std::string::npos) << dry.out;
  remove_all(folder_of(out, "adapter") + "/checkpoints");
  expect_refused(
      "train " + with_adapters("shape", "  - {rank: 2}\n") + " --output " + out + " --train.resume never", 2,
      "holds a run already, and train.resume is never");
}

TEST_F(AdapterCli, AHeadThatIsTheEmbeddingIsTrainedWhole) {
  const std::string out = folder() + "/whole_head";
  const Outcome trained =
      run("train " + with_adapters("whole_head", "  - {modules_to_save: [lm_head], bias: all}\n") +
          " --output " + out);
  EXPECT_EQ(trained.code, 0) << trained.err;
  const checkpoints::SafetensorsFile file(folder_of(out, "adapter") + "/adapter/adapter_model.safetensors");
  EXPECT_NE(file.find("base_model.model.lm_head.weight"), nullptr);
  EXPECT_EQ(file.find("base_model.model.model.embed_tokens.weight"), nullptr);
}

TEST_F(AdapterCli, MistakesAreOneClearErrorEach) {
  const auto refuse = [](const std::string& list, const std::string& message) {
    expect_refused("train " + with_adapters("bad", list) + " --output " + folder() + "/x", 2, message);
  };
  refuse("  - {rank: 0}\n", "[adapters.adapter.rank] is 0, expected at least 1");
  refuse("  - {target_modules: [q_prj]}\n", "no module is called 'q_prj'; did you mean 'q_proj'?");
  refuse("  - {patterns: [{modules: none_such, alpha: 2}]}\n",
         "[adapters.adapter.patterns] the pattern 'none_such' matches no adapted module");
  for (const char* flags : {"", " --dry-run"})
    expect_refused(
        "train " +
            with_adapters("twice",
                          "  - {patterns: [{modules: v_proj, rank: 8}, {modules: v_proj, rank: 4}]}\n") +
            " --output " + folder() + "/x" + flags,
        2, "[adapters.adapter.patterns] 'v_proj' has two ranks, 8 and 4");
  refuse("  - {rank: 2}\n  - {rank: 4}\n", "[adapters] two of them are called 'adapter'");
  refuse("  - {name: a/b}\n", "[adapters] the name 'a/b' cannot be a folder's");
  refuse("  - {lr_rate: 2}\n", "adapters[0].lr_rate");
  for (const char* flags : {"", " --dry-run"})
    expect_refused(
        "train " + with_adapters("parts", "  - {target_modules: [q_proj], modules_to_save: [k_proj]}\n") +
            " --output " + folder() + "/x" + flags,
        2,
        "[adapters.adapter.modules_to_save] of model.layers.0.self_attn, k_proj would be trained in full and "
        "q_proj adapted, but q_proj, k_proj, v_proj are one matrix multiplication in Temper");

  // An adapter for another model: other names, and other shapes.
  const std::string model = folder() + "/model", goldens = TEMPER_SOURCE_DIR "/tests/goldens/adapters/";
  expect_refused("generate " + model + " -p x --adapter " + goldens + "qwen2_bias", 2,
                 "belong to no module of this model");
  expect_refused("generate " + model + " -p x --adapter " + goldens + "llama_all_linear", 2,
                 "made for another base model");
  expect_refused("generate " + model + " -p x --adapter " + model, 2, "found no adapter_config.json");
  const std::string whole = goldens + "qwen3_whole";
  expect_refused("merge " + whole + " " + folder() + "/y", 2, "name its folder with --base");
  expect_refused("generate " + whole + " -p x", 2, "is an adapter's folder, expected a model's");
  expect_refused("train " + with_adapters("shapes", "  - {from: " + whole + "}\n") + " --output " + folder() +
                     "/shapes --dry-run",
                 2, "of another shape");
  const std::string merge = "merge " + whole + " --base " TEMPER_SOURCE_DIR "/tests/goldens/qwen3 ";
  expect_refused(merge + model, 2, "exists already");
  expect_refused(merge + whole + "/inside", 2, "which is read; choose a folder of its own");
  expect_refused(
      "generate " TEMPER_SOURCE_DIR "/tests/goldens/qwen3 -p x --adapter " + whole + " --adapter " + whole, 2,
      "two adapters are called 'qwen3_whole'");
}

}  // namespace
}  // namespace temper
