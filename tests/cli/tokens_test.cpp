// Which tokens a run trains: at the borders of answers, those that several files declare, those of padded
// vocabularies.
#include "tests/cli/cli_fixture.h"

namespace temper {
namespace {

const std::string kGoldens = TEMPER_SOURCE_DIR "/tests/goldens/";

// A model whose tokenizer has " positive" and two line ends as one token each, 283 tokens in all; its
// vocab_size is 320.
class TokensCli : public Cli {
 protected:
  static void SetUpTestSuite() {
    Cli::SetUpTestSuite();
    ASSERT_EQ(run("init " + kGoldens + "prompt_boundary " + merging() + " --seed 3").code, 0);
  }
  static std::string merging() { return folder() + "/merging"; }

  static Outcome train(const std::string& name, const std::string& rows, const std::string& flags) {
    write_file(folder() + "/" + name + ".jsonl", rows);
    return run("train --model.path " + merging() + " --data.train [" + folder() + "/" + name +
               ".jsonl] --data.max_length 64 --train.rows_per_step 1 --output " + folder() + "/" + name +
               " " + flags);
  }

  // What the model answers greedily after 60 updates on the row.
  static std::string answer_after(const std::string& name, const std::string& row, const std::string& ask,
                                  const std::string& flags = "") {
    const Outcome trained = train(name, row, "--train.steps 60 --train.optimizer.lr 3e-3 " + flags);
    EXPECT_EQ(trained.code, 0) << trained.err;
    const std::string out = folder() + "/" + name;
    write_file(out + "_ask.jsonl", ask);
    const Outcome asked =
        run("batch " + out + "/model " + out + "_ask.jsonl --out " + out + "_answers.jsonl --greedy -n 24");
    EXPECT_EQ(asked.code, 0) << asked.err;
    return Json::parse(read_file(out + "_answers.jsonl"), "answer").at("text").as_string();
  }
};

constexpr std::string_view kRow = R"({"prompt": "Label: ", "completion": "positive"})",
                           kAsk = R"({"prompt": "Label: "})";

TEST_F(TokensCli, OneRowIsLearntBehindItsPrompt) {
  EXPECT_EQ(answer_after("space", std::string(kRow), std::string(kAsk)), "positive");
  EXPECT_EQ(answer_after("taught", std::string(kRow), std::string(kAsk),
                         "--recipe distill --distill.teacher " + folder() + "/space/model"),
            "positive");
}

TEST_F(TokensCli, AnAnswerMayBeginWithALineEnd) {
  EXPECT_EQ(
      answer_after(
          "newline",
          R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "\nblue"}]})",
          R"({"prompt": [{"role": "user", "content": "a"}]})"),
      "\nblue");
}

TEST_F(TokensCli, OneComparisonIsLearntBehindItsPrompt) {
  EXPECT_EQ(answer_after("pair", R"({"prompt": "Label: ", "chosen": "positive", "rejected": "use"})",
                         std::string(kAsk), "--recipe preference --preference.loss orpo"),
            "positive");
  EXPECT_TRUE(answer_after("pair_dpo", R"({"prompt": "Label: ", "chosen": "positive", "rejected": "use"})",
                           std::string(kAsk), "--recipe preference --preference.loss dpo")
                  .starts_with("positive"));
}

TEST_F(TokensCli, IdsOfAPaddedVocabularyTrain) {
  const Outcome padded = train("padded", R"({"input_ids": [1, 2, 300, 319]})", "--train.steps 2");
  EXPECT_EQ(padded.code, 0) << padded.err;
  const Outcome beyond = train("beyond", R"({"input_ids": [1, 2, 320]})", "--train.steps 2");
  EXPECT_EQ(beyond.code, 2);
  EXPECT_NE(beyond.err.find("input_ids[2] is 320, expected 0 to 319"), std::string::npos) << beyond.err;
  const Outcome shown = run("data inspect --model.path " + merging() + " --data.train [" + folder() +
                            "/padded.jsonl] --data.max_length 64");
  EXPECT_NE(shown.out.find("<id 300>|<id 319>|"), std::string::npos) << shown.out;
}

TEST_F(TokensCli, ATeacherWithAPaddedVocabularyIsReportedSo) {
  Json config = Json::parse_file(merging() + "/config.json");
  config.set("vocab_size", 384);
  const std::string wide = folder() + "/wide";
  std::filesystem::copy(kGoldens + "prompt_boundary", wide + "_config");
  write_file(wide + "_config/config.json", config.dump());
  ASSERT_EQ(run("init " + wide + "_config " + wide).code, 0);
  const Outcome refused =
      train("no_teacher", std::string(kRow), "--recipe distill --distill.teacher " + wide);
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(
      refused.err.find("has a vocab_size of 384, the model 320, though both tokenizers have the same 283 "
                       "tokens: the rest is padding; resize it with resize_token_embeddings(320)"),
      std::string::npos)
      << refused.err;
}

TEST_F(TokensCli, TokensThatOtherFilesDeclareAreOneIdAndAreSaved) {
  const std::string base = folder() + "/declared", out = folder() + "/declared_run";
  std::filesystem::copy(kGoldens + "prompt_boundary", base + "_config");
  write_file(base + "_config/tokenizer.json", read_file(kGoldens + "declared_tokens/tokenizer.json"));
  Json settings = Json::parse_file(kGoldens + "prompt_boundary/tokenizer_config.json");
  Json::Object decoder;
  for (const auto& [id, content] :
       {std::pair{"280", "<|endoftext|>"}, {"281", "<|im_start|>"}, {"282", "<|im_end|>"}})
    decoder.emplace_back(id, Json::Object{{"content", content}, {"special", true}});
  settings.set("added_tokens_decoder", std::move(decoder));
  write_file(base + "_config/tokenizer_config.json", settings.dump());
  write_file(base + "_config/added_tokens.json", R"({"<|more|>": 290})");
  ASSERT_EQ(run("init " + base + "_config " + base).code, 0);
  write_file(base + ".jsonl",
             R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "ok"}]})");
  const std::string flags = " --data.train [" + base + ".jsonl] --data.max_length 256 ";
  const Outcome trained =
      run("train --model.path " + base + flags + "--train.steps 1 --train.rows_per_step 1 --output " + out);
  ASSERT_EQ(trained.code, 0) << trained.err;
  for (const std::string& model : {base, out + "/model"}) {
    const Outcome shown = run("data inspect --model.path " + model + flags);
    EXPECT_NE(shown.out.find("14 tokens"), std::string::npos) << shown.out;
    EXPECT_NE(shown.out.find("<|im_start|>|"), std::string::npos) << shown.out;
    EXPECT_EQ(Json::parse_file(model + "/tokenizer_config.json").at("added_tokens_decoder"),
              settings.at("added_tokens_decoder"));
    EXPECT_EQ(Json::parse_file(model + "/added_tokens.json").at("<|more|>"), Json(290));
  }
}

}  // namespace
}  // namespace temper
