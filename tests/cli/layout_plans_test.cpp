// temper plan: layouts with memory and speed, from published and from measured times.
#include <algorithm>
#include <regex>

#include "tests/cli/cli_fixture.h"

namespace temper {
namespace {

class LayoutPlans : public Cli {
 protected:
  // A published shape; nothing but its config.json is there.
  static std::string shape() {
    const std::string folder_of_shape = folder() + "/shape";
    if (!is_directory(folder_of_shape)) {
      make_directories(folder_of_shape);
      write_file(
          folder_of_shape + "/config.json",
          R"({"model_type": "qwen3", "vocab_size": 32000, "hidden_size": 1024, "intermediate_size": 3072,
                     "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 128,
                     "max_position_embeddings": 4096})");
    }
    return folder_of_shape;
  }
  static std::string of_shape() {
    return "plan --model.path " + shape() +
           " --data.max_length 1024 --train.micro_batch_tokens 1024 --output " + folder() + "/planned ";
  }
  static std::string in_bfloat16() { return of_shape() + "--model.dtype bfloat16 --train.rows_per_step 16 "; }
  static std::string without_digits(const std::string& text) {
    const std::string plain = std::regex_replace(text, std::regex("[0-9]+(\\.[0-9]+)?(e[-+][0-9]+)?"), "#");
    return std::regex_replace(std::regex_replace(plain, std::regex(" +"), " "), std::regex("[KMG]iB"), "B");
  }
  static void expect_source(const Outcome& plan, const char* source) {
    const Json all = Json::parse(plan.out, "stdout");
    EXPECT_FALSE(all.at("layouts").as_array().empty());
    for (const Json& layout : all.at("layouts").as_array())
      EXPECT_EQ(layout.at("update_seconds").at("source"), Json(source));
  }
  static double value(const Json& layout, const char* figure) {
    return layout.at(figure).at("value").as_double();
  }
};

TEST_F(LayoutPlans, ListsLayoutsFromPublishedTimes) {
  const Outcome outcome = run(in_bfloat16() + "--ranks 4 --hardware h100 --top 2 --parallel.pipeline 2");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const std::string table = outcome.out.substr(0, outcome.out.find("\nlayout  "));
  EXPECT_EQ(without_digits(table.substr(0, table.find("               one of"))),
            "model # M parameters\n"
            "update # rows, # tokens, documents as long as rows\n"
            "ranks # of NVIDIA H# #GB HBM#, # on each host; each may use # B\n"
            "times ops computed; ranks of one host computed; memory computed (rehearsed)\n"
            "layouts # possible, # rehearsed: # fit\n"
            " others: # refused for the model or the run, # with more ranks than rows of an update\n");
  EXPECT_NE(
      outcome.out.find("ranks          4 of NVIDIA H100 80GB HBM3, 4 on each host; each may use 77.65 GiB"),
      std::string::npos)
      << outcome.out;
  EXPECT_NE(outcome.out.find("update         16 rows, 16384 tokens"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("\nuse the first with: temper train RUN.yaml --ranks 4 --parallel."),
            std::string::npos)
      << outcome.out;
  EXPECT_EQ(std::ranges::count(outcome.out.substr(outcome.out.find("\nlayout  ")), '\n'), 7) << outcome.out;
}

// Sorted by speed; figures belong together; what is to be pasted is what train takes, and needs that memory.
TEST_F(LayoutPlans, FiguresAreForPrograms) {
  const Outcome outcome = run(in_bfloat16() + "--ranks 4 --hardware h100 --json");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json plan = Json::parse(outcome.out, "stdout");
  const Json::Array& layouts = plan.at("layouts").as_array();
  ASSERT_EQ(layouts.size(), 10u);
  double before = 0;
  for (const Json& layout : layouts) {
    const double seconds = value(layout, "update_seconds");
    EXPECT_GE(seconds, before);
    before = seconds;
    EXPECT_NEAR(value(layout, "tokens_per_second") * seconds, 16384, 1e-6);
    EXPECT_NEAR(value(layout, "tokens_per_second_of_rank") * 4, value(layout, "tokens_per_second"), 1e-6);
    EXPECT_NEAR(value(layout, "share_of_peak") * 4 * 989e12 * seconds,
                plan.at("update").at("flops").as_double(), 1e6);
    EXPECT_EQ(layout.at("update_seconds").at("source"), Json("computed"));
    EXPECT_EQ(value(layout, "sent_to_network"), 0);
  }
  const Json& counts = plan.at("counts");
  EXPECT_EQ(counts.at("rehearsed").as_int() + counts.at("cannot_be_faster").as_int() +
                counts.at("cannot_fit").as_int(),
            counts.at("possible").as_int());
}

// Hosts of two: what leaves them takes the slower network.
TEST_F(LayoutPlans, RanksOfOtherHostsAreReachedByTheNetwork) {
  const auto plan = [&](const std::string& options) {
    const Outcome outcome =
        run(in_bfloat16() + "--ranks 4 --hardware h100 --json --parallel.replicate 4 " + options);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return Json::parse(outcome.out, "stdout").at("layouts").as_array().at(0);
  };
  const Json one = plan(""), two = plan("--ranks-per-host 2");
  EXPECT_GT(value(two, "sent_to_network"), 0);
  EXPECT_GT(value(two, "update_seconds"), value(one, "update_seconds"));
  EXPECT_EQ(value(two, "memory"), value(one, "memory"));
}

// On this machine: its times are measured and used, and the plan is not far from what the run takes.
TEST_F(LayoutPlans, MeasuredTimesAreMarked) {
  const std::string times = folder() + "/times.json";
  const Outcome measured = run("plan --measure " + times + " --dtype float32");
  ASSERT_EQ(measured.code, 0) << measured.err;
  EXPECT_NE(measured.out.find("products  "), std::string::npos) << measured.out;
  EXPECT_LT(read_file(times).size(), 20000u);
  const std::string command = "plan " + yaml() + " --times " + times;
  const Outcome outcome = run(command + " --ranks 2 --json");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  expect_source(outcome, "computed");  // of links nothing was measured
  const Outcome alone = run(command);
  ASSERT_EQ(alone.code, 0) << alone.err;
  EXPECT_NE(alone.out.find("times          ops measured;"), std::string::npos) << alone.out;
  EXPECT_NE(alone.out.find("documents as in data.train"), std::string::npos) << alone.out;
  EXPECT_NE(alone.out.find("one rank"), std::string::npos) << alone.out;
  EXPECT_NE(alone.out.find("  measured\n"), std::string::npos) << alone.out;
  EXPECT_NE(alone.out.find("temper train RUN.yaml --ranks 1\n"), std::string::npos) << alone.out;
}

TEST_F(LayoutPlans, LinksAreMeasuredBetweenRanks) {
  const std::string times = folder() + "/two.json";
  const Outcome outcome = run("plan --measure " + times + " --dtype float32 --ranks 2");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("one host       "), std::string::npos) << outcome.out;
  const Json link = Json::parse_file(times).at("links").at("host");
  EXPECT_GT(link.at("bytes_per_second").as_double(), 1e6);
  EXPECT_GT(link.at("latency").as_double(), 1e-9);
  const Outcome plan = run("plan " + yaml() + " --ranks 2 --json --times " + times);
  ASSERT_EQ(plan.code, 0) << plan.err;
  expect_source(plan, "measured");
}

TEST_F(LayoutPlans, WhatCannotBePlannedIsRefused) {
  expect_refused(in_bfloat16() + "--ranks 0", 2,
                 "[command line] --ranks is '0'; expected a number from 1 to 65536");
  expect_refused(in_bfloat16() + "--ranks 2 --hardware h1000", 2,
                 "[--hardware] 'h1000' is not known; use one of [a100, b200, h100, h200, l40s]");
  expect_refused(of_shape() + "--ranks 2 --hardware h100", 2,
                 "[model.dtype] is float32, but the times of NVIDIA H100 80GB HBM3 are those of bfloat16");
  expect_refused(
      of_shape() +
          "--ranks 3 --hardware h100 --model.dtype bfloat16 --train.rows_per_step 1 --parallel.replicate 3",
      2, "leave ranks without rows, as an update has 1");
  expect_refused(in_bfloat16() + "--ranks 2 --hardware h100 --memory_limit_mib 64", 4,
                 "[memory] no layout of 2 ranks fits");
  expect_refused("plan --measure " + folder() + "/nowhere/times.json", 2, "is no folder; make it first");
  expect_refused("plan " + yaml() + " --measure " + folder() + "/t.json", 2,
                 "[command line] --measure times typical models; leave out '" + yaml() + "'");
  write_file(folder() + "/other.json", "{}");
  expect_refused(in_bfloat16() + "--ranks 2 --times " + folder() + "/other.json", 2, "is no file of times");
}

}  // namespace
}  // namespace temper
