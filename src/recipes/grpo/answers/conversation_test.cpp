#include "recipes/grpo/answers/conversation.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/errors.h"
#include "tokenizers/tokenizer.h"

namespace temper::recipes {
namespace {

using OnError = FilterKeys::OnRewardError;

const std::string kAsked = "<|im_start|>user\n2 + 2?<|im_end|>\n<|im_start|>assistant\n";

const tokenizers::Tokenizer& qwen() {
  static const auto tokenizer =
      tokenizers::Tokenizer::load(std::string(TEMPER_SOURCE_DIR) + "/tests/goldens/tokenizer_qwen");
  return tokenizer;
}

// Each message of the last `most` as <|im_start|>role\ncontent<|im_end|>\n.
data::ChatRenderer chatml(size_t most = 100) {
  return [most](const Json& messages, bool asks, const Json&) {
    data::RenderedChat chat;
    const Json::Array& all = messages.as_array();
    for (size_t i = all.size() - std::min(most, all.size()); i < all.size(); ++i)
      chat.text += fmt::format("<|im_start|>{}\n{}<|im_end|>\n", all[i].at("role").as_string(),
                               all[i].at("content").as_string());
    if (asks) chat.text += "<|im_start|>assistant\n";
    return chat;
  };
}

// A question, and what is known of it.
struct Question {
  Question() {
    prompt.row = 7;
    prompt.place = "rows.jsonl:8";
    prompt.json = Json::parse(R"({"messages": [{"role": "user", "content": "2 + 2?"}]})", "row");
    prompt.messages = prompt.json.at("messages");
    prompt.ids = qwen().encode(kAsked);
    asked = {&prompt, 3, 1, 5};
  }
  Prompt prompt;
  Asked asked;
};

data::RowEncoder encoder(data::ChatRenderer render = chatml()) {
  return data::RowEncoder(qwen(), std::move(render), {});
}

rollout::Completion turn_of(const std::string& text, rollout::Finish finish = rollout::Finish::kStopToken) {
  rollout::Completion turn;
  turn.ids = qwen().encode(text + "<|im_end|>");
  turn.columns.rollout_log_probs.assign(turn.ids.size(), -1);
  turn.text = text;
  turn.finish = finish;
  return turn;
}

void add(Conversation& talk, const rollout::Completion& turn, uint64_t version) {
  talk.add_turn(turn, std::vector<uint64_t>(turn.ids.size(), version));
}

rewards::RewardSum::Judged worth(double reward, const char* next = nullptr, const char* error = "") {
  return {{reward, error, next == nullptr ? Json() : Json::parse(next, "next")}, {reward}};
}

const char* const kAgain = R"([{"role": "user", "content": "And 3 + 3?"}])";

TEST(Conversation, TurnsOfAnEnvironmentAddUp) {
  const Question question;
  Conversation talk(question.asked, 2);
  EXPECT_EQ(talk.ids(), question.prompt.ids);
  EXPECT_EQ(talk.place(), "rows.jsonl:8, sample 1");
  add(talk, turn_of("4"), 10);
  EXPECT_EQ(talk.to_judge().messages.as_array().back().dump(), R"({"role": "assistant", "content": "4"})");
  const Json said = talk.add_verdict(worth(0.5, kAgain), OnError::kStop);
  ASSERT_TRUE(talk.extend(said, encoder(), qwen(), 200));
  const size_t before = talk.sample().passages[0].ids.size();
  EXPECT_EQ(qwen().decode(talk.ids()),
            kAsked + "4<|im_end|>\n<|im_start|>user\nAnd 3 + 3?<|im_end|>\n<|im_start|>assistant\n");
  add(talk, turn_of("6"), 11);
  EXPECT_TRUE(talk.add_verdict(worth(0.25), OnError::kStop).is_null());
  const SampledAnswer answer = talk.take_sample();
  EXPECT_EQ(answer.rollout, 2);
  EXPECT_EQ(answer.row, 7);
  EXPECT_EQ(answer.reward, 0.75);
  EXPECT_EQ(answer.parts, (std::vector<double>{0.75}));
  EXPECT_EQ(answer.turns, 2);
  EXPECT_EQ(answer.text, "6");
  // What the environment said is not sampled, and has no numbers.
  ASSERT_EQ(answer.passages.size(), 1u);
  const Passage& passage = answer.passages[0];
  EXPECT_EQ(answer.count_sampled(), 4);
  EXPECT_TRUE(passage.columns.fits(std::ssize(passage.ids)));
  for (size_t i = 0; i < passage.ids.size(); ++i) {
    EXPECT_EQ(passage.sampled[i], i < 2 || i >= before);
    EXPECT_EQ(passage.columns.rollout_log_probs[i], passage.sampled[i] != 0 ? -1 : 0);
    EXPECT_EQ(passage.versions[i], passage.sampled[i] == 0 ? 0u : i < 2 ? 10u : 11u);
  }
}

// The template writes earlier turns otherwise: both forms that the model saw are kept.
TEST(Conversation, AnotherFormOfEarlierTurnsIsAnotherPassage) {
  const Question question;
  Conversation talk(question.asked, 0);
  add(talk, turn_of("4"), 0);
  ASSERT_TRUE(talk.extend(Json::parse(kAgain, "next"), encoder(chatml(1)), qwen(), 200));
  ASSERT_EQ(talk.sample().passages.size(), 2u);
  EXPECT_EQ(talk.sample().passages[0].ids, turn_of("4").ids);
  EXPECT_EQ(qwen().decode(talk.ids()), "<|im_start|>user\nAnd 3 + 3?<|im_end|>\n<|im_start|>assistant\n");
}

TEST(Conversation, IsOverWhereThereIsNoRoom) {
  const Question question;
  Conversation talk(question.asked, 0);
  add(talk, turn_of("4"), 0);
  EXPECT_FALSE(talk.extend(Json::parse(kAgain, "next"), encoder(), qwen(), 20));
  EXPECT_EQ(talk.sample().finish, "length");
  EXPECT_EQ(talk.sample().turns, 1);
  Conversation cut(question.asked, 0);
  add(cut, turn_of("4", rollout::Finish::kLength), 0);
  EXPECT_TRUE(cut.add_verdict(worth(1, kAgain), OnError::kStop).is_null()) << "it was cut off";
}

TEST(Conversation, AnAnswerThatCannotBeJudgedIsAnErrorOrLeftOut) {
  const Question question;
  Conversation talk(question.asked, 0);
  add(talk, turn_of("4"), 0);
  talk.add_verdict(worth(1), OnError::kStop);
  expect_has(error_of([&] { talk.add_verdict(worth(0, nullptr, "no number"), OnError::kStop); }),
             "[rows.jsonl:8, sample 1] no number; grpo.filter.on_reward_error: drop");
  EXPECT_TRUE(talk.add_verdict(worth(0, kAgain, "no number"), OnError::kDrop).is_null());
  EXPECT_TRUE(std::isnan(talk.sample().reward)) << "earlier turns are no verdict";
  EXPECT_TRUE(talk.sample().parts.empty());
  EXPECT_EQ(talk.sample().error, "no number");
}

TEST(Conversation, RefusesWhatIsNoMessage) {
  const Question question;
  Conversation talk(question.asked, 0);
  add(talk, turn_of("4"), 0);
  const auto refusal = [&](const char* said) {
    return error_of([&] { talk.extend(Json::parse(said, "said"), encoder(), qwen(), 200); });
  };
  expect_has(refusal("[]"),
             "[rows.jsonl:8, sample 1] the environment's messages are an array, expected a list");
  expect_has(refusal(R"([{"content": "3"}])"), "a message of the environment has no role");
}

}  // namespace
}  // namespace temper::recipes
