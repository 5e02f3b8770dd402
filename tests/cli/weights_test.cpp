// New weights for a program that answers: temper weights send, temper batch --weights-from.
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <sstream>
#include <thread>

#include "exchange/connection.h"
#include "tests/cli/cli_fixture.h"

namespace temper {
namespace {

class Weights : public Cli {
 protected:
  static std::string socket() { return folder() + "/weights.sock"; }
  static std::string send(const std::string& model, const std::string& more = "") {
    return "weights send " + folder() + "/" + model + " --to " + socket() + " " + more;
  }
  static void make_other() {
    if (!exists(folder() + "/other")) {
      ASSERT_EQ(run("init " + folder() + "/qwen3-tiny " + folder() + "/other --seed 7").code, 0);
    }
  }
};

std::string rows(int64_t count) {
  std::string text;
  for (int64_t i = 0; i < count; ++i) text += R"({"prompt": ")" + std::to_string(i) + R"( + 1 = "})" + "\n";
  return text;
}

// "row sample ids log_probs" of an answer, by its versions: 0, 4, or -1 where it has both.
std::multimap<int64_t, std::string> answers_in(const std::string& path) {
  std::multimap<int64_t, std::string> answers;
  std::istringstream stream(read_file(path));
  for (std::string line; std::getline(stream, line);) {
    const Json row = Json::parse(line, "answer");
    int64_t version = 0;
    if (const Json* versions = row.find("versions")) {
      EXPECT_EQ(versions->as_array().size(), row.at("ids").as_array().size());
      version = versions->as_array().front().as_int();
      for (const Json& each : versions->as_array())
        if (each != versions->as_array().front()) version = -1;
    }
    answers.emplace(version, row.at("row").dump() + " " + row.at("sample").dump() + " " +
                                 row.at("ids").dump() + " " + row.at("log_probs").dump());
  }
  return answers;
}

// What was answered by one kind of weights alone is what a program with these weights answers.
TEST_F(Weights, AnswersChangeWithTheWeightsThatCome) {
  if (!has_invariant_kernels()) GTEST_SKIP() << "this processor has no batch-invariant kernels";
  make_other();
  write_file(folder() + "/rows.jsonl", rows(24));
  const auto batch = [&](const std::string& model, const std::string& out, const std::string& more = "") {
    return "batch " + folder() + "/" + model + " " + folder() + "/rows.jsonl --out " + folder() + "/" + out +
           " --samples 24 --batch 8 -t 1 -n 40 --seed 5 --threads 1 --batch-invariant " + more;
  };
  auto answering = std::async(std::launch::async,
                              [&] { return run(batch("model", "new.jsonl", "--weights-from " + socket())); });
  // Some answers are there before new weights come.
  const auto began = [&] {
    return exists(folder() + "/new.jsonl") && file_size(folder() + "/new.jsonl") > 0;
  };
  while (!began() && answering.wait_for(std::chrono::milliseconds(5)) != std::future_status::ready) {
  }
  for (const char* names : {"checkpoint", "packed"}) {
    const Outcome sent = run(send("other", std::string("--check-sync --as-version 4 --names ") + names));
    EXPECT_EQ(sent.code, 0) << sent.err;
    EXPECT_NE(sent.out.find("version 4: "), std::string::npos) << sent.out;
    EXPECT_NE(sent.out.find("parameters and buffers are alike"), std::string::npos) << sent.out;
  }
  const Outcome answered = answering.get();
  ASSERT_EQ(answered.code, 0) << answered.err;
  EXPECT_NE(answered.err.find("took weights of version 4: "), std::string::npos) << answered.err;
  EXPECT_FALSE(exists(socket()));
  ASSERT_EQ(run(batch("model", "first.jsonl")).code, 0);
  ASSERT_EQ(run(batch("other", "second.jsonl")).code, 0);
  const auto found = answers_in(folder() + "/new.jsonl");
  EXPECT_EQ(found.size(), 24u * 24u);
  EXPECT_GT(found.count(4), 0u);
  EXPECT_GT(found.count(0) + found.count(-1), 0u);
  for (const auto& [version, file] : {std::pair{0, "/first.jsonl"}, {4, "/second.jsonl"}}) {
    std::set<std::string> expected;
    for (const auto& [none, answer] : answers_in(folder() + file)) expected.insert(answer);
    for (auto [each, end] = found.equal_range(version); each != end; ++each)
      EXPECT_TRUE(expected.contains(each->second)) << version << ": " << each->second;
  }
}

TEST_F(Weights, WhatCannotBeSentIsRefused) {
  expect_refused(send("model"), 2, "no process takes weights there");
  expect_refused(send("model", "--names all"), 2, "expected checkpoint or packed");
  expect_refused(send("model", "--as-version 0"), 2, "[--as-version] 0 is out of range");
  expect_refused(send("model", "--chunk-mib 0"), 2, "[--chunk-mib] 0 is out of range");
  expect_refused(send("model", "--deadline 0"), 2, "[--deadline] 0 is out of range");
  expect_refused(send("nothing"), 2, "no such folder");
  expect_refused("weights send " + folder() + "/model", 2, "--to is missing");
}

// A receiver whose first parameter has other bits than those that were sent.
TEST_F(Weights, CheckSyncNamesWhatDiffers) {
  const exchange::Listener listener(socket());
  auto sending = std::async(std::launch::async, [&] { return run(send("model", "--check-sync")); });
  exchange::Connection connection(::accept(listener.socket(), nullptr, nullptr), "the sender", 20);
  for (std::string type; type != "hashes";) {
    const exchange::Message message = connection.receive();
    type = message.json.at("type").as_string();
    Json answer(Json::Object{});
    if (type == "hello") answer = Json::Object{{"process", "the receiver's"}};
    if (type == "finish")
      answer = Json::Object{
          {"published", true}, {"num_unknown", 12}, {"unknown", Json::Array{"a.weight", "b.weight"}}};
    if (type == "hashes")
      answer = Json::Object{
          {"parameters",
           Json::Object{{"norm.weight", Json::Object{{"dtype", "float32"}, {"digest", "0123"}}},
                        {"extra.weight", Json::Object{{"dtype", "float32"}, {"digest", "4567"}}}}}};
    connection.send(answer);
  }
  const Outcome sent = sending.get();
  EXPECT_EQ(sent.code, 1) << sent.err;
  for (const char* line : {"differs: norm.weight: sent float32 ", "received float32 0123",
                           "differs: extra.weight: the sender does not have it",
                           "differs: embedding.weight: the receiver does not have it"})
    EXPECT_NE(sent.out.find(line), std::string::npos) << line << "\n" << sent.out;
  EXPECT_NE(sent.err.find("does not know 12 of the names: a.weight, b.weight, …"), std::string::npos)
      << sent.err;
}

}  // namespace
}  // namespace temper
