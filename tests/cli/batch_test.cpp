// Answers to all rows of a file: temper batch.
#include <set>
#include <sstream>

#include "tests/cli/cli_fixture.h"

namespace temper {
namespace {

std::string rows() {
  std::string text;
  for (int i = 0; i < 6; ++i)
    text += R"({"prompt": [{"role": "user", "content": "What is )" + std::to_string(10 + i) +
            R"( + 5?"}], "answer": )" + std::to_string(15 + i) + "}\n";
  return text + R"({"messages": [{"role": "user", "content": "What is 1 + 1?"}]})" + "\n" +
         R"({"prompt": "1 + 1 = "})" + "\n";
}

std::set<std::string> lines_of(const std::string& text) {
  std::set<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.insert(line);
  return lines;
}

std::string command(const std::string& folder, const std::string& out, const std::string& more = "") {
  return "batch " + folder + "/model " + folder + "/rows.jsonl --out " + folder + "/" + out +
         " --samples 3 -t 1 -n 12 --seed 5 --threads 1 --batch-invariant " + more;
}

TEST_F(Cli, BatchAnswersEveryRow) {
  if (!has_invariant_kernels()) GTEST_SKIP() << "this processor has no batch-invariant kernels";
  write_file(folder() + "/rows.jsonl", rows());
  const Outcome outcome = run(command(folder(), "all.jsonl"));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("24 answers, "), std::string::npos) << outcome.err;
  const std::string whole = read_file(folder() + "/all.jsonl");
  std::set<std::pair<int64_t, int64_t>> found;
  std::set<std::string> texts;
  for (const std::string& line : lines_of(whole)) {
    const Json row = Json::parse(line, "answer");
    found.insert({row.at("row").as_int(), row.at("sample").as_int()});
    texts.insert(row.at("ids").dump());
    EXPECT_EQ(row.at("ids").as_array().size(), row.at("log_probs").as_array().size());
    EXPECT_NE(row.at("input").find(row.at("row").as_int() == 6 ? "messages" : "prompt"), nullptr);
  }
  EXPECT_EQ(found.size(), 24u);
  EXPECT_GT(texts.size(), 20u);  // samples differ

  // What top-k, top-p and min-p kept, where they are asked for.
  ASSERT_EQ(run(command(folder(), "cut.jsonl", "--top-k 5 --top-p 0.9")).code, 0);
  for (const std::string& line : lines_of(read_file(folder() + "/cut.jsonl"))) {
    const Json row = Json::parse(line, "answer");
    const Json::Array &kept = row.at("kept").as_array(), &log_probs = row.at("log_probs").as_array();
    ASSERT_EQ(kept.size(), log_probs.size());
    for (size_t i = 0; i < kept.size(); ++i) EXPECT_LE(log_probs[i].as_double(), kept[i].as_double());
  }
  EXPECT_EQ(whole.find("kept"), std::string::npos);
  ASSERT_EQ(run(command(folder(), "likely.jsonl", "--min-p 1")).code, 0);
  ASSERT_EQ(run(command(folder(), "greedy.jsonl", "--greedy")).code, 0);
  const auto ids_of = [](const std::string& file) {
    std::set<std::string> all;
    for (const std::string& line : lines_of(read_file(file))) {
      const Json row = Json::parse(line, "answer");
      all.insert(row.at("row").dump() + " " + row.at("ids").dump());
      EXPECT_EQ(row.find("kept") != nullptr, file.ends_with("likely.jsonl"));
    }
    return all;
  };
  EXPECT_EQ(ids_of(folder() + "/likely.jsonl"), ids_of(folder() + "/greedy.jsonl"));

  // Whatever the batch, and wherever a run was ended: the same answers.
  EXPECT_EQ(run(command(folder(), "one.jsonl", "--batch 1")).code, 0);
  EXPECT_EQ(lines_of(read_file(folder() + "/one.jsonl")), lines_of(whole));
  for (const double part : {0.0, 0.31, 0.77}) {
    write_file(
        folder() + "/part.jsonl",
        std::string_view(whole).substr(0, static_cast<size_t>(part * static_cast<double>(whole.size()))));
    EXPECT_EQ(run(command(folder(), "part.jsonl", "--batch 5")).code, 0);
    EXPECT_EQ(lines_of(read_file(folder() + "/part.jsonl")), lines_of(whole)) << part;
  }
  const Outcome again = run(command(folder(), "all.jsonl"));
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_NE(again.err.find("24 of 24 answers are in"), std::string::npos) << again.err;
  EXPECT_EQ(read_file(folder() + "/all.jsonl"), whole);
  expect_refused(command(folder(), "all.jsonl", "--top-k 3"), 2, "with other settings; name another --out");
}

TEST_F(Cli, BatchRefusesAnswersOfAnotherModel) {
  if (!has_invariant_kernels()) GTEST_SKIP() << "this processor has no batch-invariant kernels";
  write_file(folder() + "/rows.jsonl", rows());
  ASSERT_EQ(run(command(folder(), "of_one.jsonl")).code, 0);
  ASSERT_EQ(run("init " + folder() + "/qwen3-tiny " + folder() + "/other_model --seed 3").code, 0);
  std::string other = command(folder(), "of_one.jsonl");
  other.replace(other.find("/model "), 7, "/other_model ");
  expect_refused(other, 2, "by another model, of another prompt, or with other settings; name another --out");
  expect_refused(command(folder(), "of_one.jsonl", "--min-p 0.1"), 2, "with other settings");
}

// A held-out chat file: its answers are left out, and stay in `input`.
TEST_F(Cli, BatchAnswersRowsThatHaveAnswers) {
  const auto chat = [](const std::string& answer) {
    return R"({"messages": [{"role": "user", "content": "What is 1 + 1?"}, {"role": "assistant", "content": )"
           R"("2"}, {"role": "user", "content": "And 2 + 2?"})" +
           answer + "]}\n";
  };
  write_file(folder() + "/asked.jsonl", chat("") + R"({"prompt": "1 + 1 = "})" + "\n");
  write_file(folder() + "/answered.jsonl", chat(R"(, {"role": "assistant", "content": "4"})") +
                                               R"({"prompt": "1 + 1 = ", "completion": "2"})" + "\n");
  std::vector<std::set<std::string>> ids;
  for (const std::string name : {"asked", "answered"}) {
    const std::string out = folder() + "/" + name + ".out.jsonl";
    const Outcome outcome = run("batch " + folder() + "/model " + folder() + "/" + name + ".jsonl --out " +
                                out + " --greedy -n 4");
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.err.find("answer of the assistant"), std::string::npos) << outcome.err;
    EXPECT_EQ(read_file(out).find(R"("content": "4")") != std::string::npos, name == "answered");
    std::set<std::string>& all = ids.emplace_back();
    for (const std::string& line : lines_of(read_file(out))) {
      const Json answer = Json::parse(line, "answer");
      all.insert(answer.at("row").dump() + answer.at("key").dump() + answer.at("ids").dump());
    }
  }
  // What was written asks the same again, though these answers were cut.
  EXPECT_EQ(run("batch " + folder() + "/model " + folder() + "/asked.out.jsonl --out " + folder() +
                "/again.jsonl --greedy -n 4")
                .code,
            0);
  EXPECT_EQ(ids[0].size(), 2u);
  EXPECT_EQ(ids[0], ids[1]);
}

TEST_F(Cli, BatchCountsRowsBehindTheTenthThatCannotBeAnswered) {
  std::string text = "no JSON\n";
  for (int i = 0; i < 13; ++i) text += "{\"review\": \"good\"}\n";
  write_file(folder() + "/unreadable.jsonl", text);
  const Outcome outcome = run("batch " + folder() + "/model " + folder() + "/unreadable.jsonl --out " +
                              folder() + "/unreadable_answers.jsonl");
  EXPECT_EQ(outcome.code, 2);
  const std::string place = "warning: [" + folder() + "/unreadable.jsonl:";
  EXPECT_NE(outcome.err.find(place + "1:1] not valid JSON"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find(place + "10] a row has no field that holds its text (fields: review)"),
            std::string::npos)
      << outcome.err;
  EXPECT_EQ(outcome.err.find(place + "11]"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("warning: 14 answers are missing; the reasons of the first 10 are above\n"),
            std::string::npos)
      << outcome.err;
}

TEST_F(Cli, BatchNamesRowsThatCannotBeAnswered) {
  if (!has_invariant_kernels()) GTEST_SKIP() << "this processor has no batch-invariant kernels";
  std::string text = rows() + R"({"prompt": 3})" + "\n" +
                     R"({"messages": [{"role": "assistant", "content": "b"}]})" + "\n" +
                     R"({"prompt": "a", "adapter": "nobody"})" + "\n";
  write_file(folder() + "/rows.jsonl", text);
  const Outcome outcome = run(command(folder(), "some.jsonl"));
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  for (const char* message :
       {"rows.jsonl:9] prompt must be a string or a list of messages, found an integer",
        "rows.jsonl:10] the row is an answer of the assistant without a question",
        "rows.jsonl:11] no adapter is called 'nobody'; there are none", "3 answers are missing"})
    EXPECT_NE(outcome.err.find(message), std::string::npos) << message << "\n" << outcome.err;
  EXPECT_EQ(lines_of(read_file(folder() + "/some.jsonl")).size(), 24u);
  expect_refused("batch " + folder() + "/model " + folder() + "/rows.jsonl", 2, "--out is missing");
  expect_refused(command(folder(), "empty_stop.jsonl", "--stop ''"), 2, "[--stop] is empty");
  expect_refused(
      command(folder(), "bf16.jsonl", "--dtype bfloat16"), 2,
      "[--batch-invariant] computes in float32 on cpu, and --dtype is bfloat16; write --dtype float32");
  expect_refused(command(folder(), "elsewhere.jsonl", "--device npu"), 2,
                 "[--batch-invariant] kernels for it are there for CPUs and NVIDIA GPUs, not for npu");
}

}  // namespace
}  // namespace temper
