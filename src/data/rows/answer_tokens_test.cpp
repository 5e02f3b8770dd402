#include "data/rows/answer_tokens.h"

#include <gtest/gtest.h>

#include "data/chat/chat_template.h"
#include "data/sources/test_support.h"

namespace temper::data {
namespace {

using Ids = std::vector<int32_t>;
const std::string kFolder = TEMPER_SOURCE_DIR "/tests/goldens/prompt_boundary";
constexpr int32_t kMergingEnd = 282;

// In which " positive" and two line ends are one token each.
const Tokenizer& merging() {
  static const Tokenizer tokenizer = Tokenizer::load(kFolder);
  return tokenizer;
}

ChatRenderer renderer_from(const std::string& folder) {
  auto loaded = templates::ChatTemplate::load(folder);
  return renderer_of(std::make_shared<const templates::ChatTemplate>(std::move(*loaded)));
}

ChatRenderer renderer_with(std::string_view source) {
  const TemporaryDirectory folder;
  write_file(folder / "chat_template.jinja", source);
  return renderer_from(folder.path());
}

RowOptions border_options(Goal goal, LossOn loss = LossOn::kAllTurns) {
  RowOptions options;
  options.eos_id = kMergingEnd;
  options.goal = goal;
  options.loss = loss;
  return options;
}

EncodedRow encode_merging(const ChatRenderer& render, std::string_view row, const RowOptions& options) {
  return RowEncoder(merging(), render, options).encode(Json::parse(row, "row"));
}

// Of the question "a", whose answer stands in JSON.
Example answered(const ChatRenderer& render, std::string_view answer) {
  const std::string row = fmt::format(R"({{"messages": [{{"role": "user", "content": "a"}},
    {{"role": "assistant", "content": "{}"}}]}})",
                                      answer);
  return encode_merging(render, row, border_options(Goal::kLanguageModel)).examples.at(0);
}

// The texts of targets, token by token.
std::vector<std::string> targets_of(const Example& example) {
  std::vector<std::string> out;
  for (size_t i = 0; i < example.ids.size(); ++i)
    if (example.loss_mask[i]) out.emplace_back(merging().token_bytes(example.ids[i]));
  return out;
}

std::vector<Json> cases() {
  std::vector<Json> all;
  const std::string text = read_file(kFolder + "/prompts.jsonl");
  for (size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1)
    all.push_back(Json::parse(std::string_view(text).substr(begin, end - begin), "prompts.jsonl"));
  return all;
}

Ids ids_of(const Json& list) {
  Ids ids;
  for (const Json& id : list.as_array()) ids.push_back(static_cast<int32_t>(id.as_int()));
  return ids;
}

// Whether the example learns these tokens of an answer behind these of its prompt, and no more of the
// prompt's last turn.
bool learns(const Example& example, const Ids& prompt, const Ids& answer) {
  Ids all = prompt;
  all.insert(all.end(), answer.begin(), answer.end());
  if (example.ids.size() < all.size() || !std::equal(all.begin(), all.end(), example.ids.begin()))
    return false;
  const auto border = example.loss_mask.begin() + std::ssize(prompt);
  return *(border - 1) == 0 && std::count(border, border + std::ssize(answer), 1) == std::ssize(answer) &&
         std::count(border + std::ssize(answer), example.loss_mask.end(), 1) == 0;
}

// Right values are those of transformers (tools/oracles/make_boundary_cases.py).
TEST(AnswerTokens, AnswersStandBehindThePromptsOfGeneration) {
  const ChatRenderer render = renderer_from(kFolder);
  size_t apart = 0;
  for (const Json& one : cases()) {
    const Json& row = one.at("row");
    const RowEncoder encoder(merging(), one.at("chat").as_bool() ? render : nullptr,
                             border_options(Goal::kAny));
    const EncodedRow encoded = encoder.encode(row);
    int64_t targets = 0;
    for (const Json& text : one.at("texts").as_array()) {
      const Ids prompt = ids_of(text.at("prompt")), answer = ids_of(text.at("answer"));
      targets += std::ssize(answer);
      // A turn before others stands in a text with them: the tokens behind it are theirs.
      const bool found =
          std::any_of(encoded.examples.begin(), encoded.examples.end(), [&](const Example& example) {
            if (learns(example, prompt, answer)) return true;
            if (encoded.examples.size() > 1 || one.at("texts").as_array().size() == 1) return false;
            Example until = example;
            until.ids.resize(prompt.size() + answer.size());
            until.loss_mask.resize(until.ids.size());
            return learns(until, prompt, answer);
          });
      EXPECT_TRUE(found) << row.dump() << " " << text.dump();
    }
    int64_t found = 0;
    for (const Example& example : encoded.examples) found += example.num_targets();
    EXPECT_EQ(found, targets) << row.dump();
    const Json::Array& texts = one.at("texts").as_array();
    EXPECT_EQ(encoder.question_of(row).prompt,
              ids_of((row.find("chosen") ? texts.front() : texts.back()).at("prompt")));
    apart += encoded.examples.size() > 1;
  }
  EXPECT_EQ(apart, 5u);  // two conversations, three preferences
}

// Each place in each text as a border.
TEST(AnswerTokens, EveryTokenizersPromptsAreThoseOfGeneration) {
  for (const std::string name :
       {"qwen", "qwen35", "llama3", "llama2", "llama2_legacy", "gemma", "gpt2", "gpt2_prefixed", "deepseek",
        "falcon", "o200k", "level_first", "unigram", "unigram_bytes", "unigram_words", "unigram_charsmap",
        "bpe_unk", "bytes_fallback"}) {
    const std::string folder = TEMPER_SOURCE_DIR "/tests/goldens/tokenizer_" + name;
    const Tokenizer tokenizer = Tokenizer::load(folder);
    const RowEncoder encoder(tokenizer, nullptr, RowOptions());
    std::vector<std::string> texts = {"Label: positive", "Q:\n\n\nA: 12345 67", "don't  stop\t now",
                                      "caf\u00e9 \u5317\u4eac \U0001F642 x", "  a   b\n \n c  "};
    int64_t places = 0, different = 0;
    for (const std::string& text : texts)
      for (size_t place = 1; place < text.size(); ++place) {
        if ((static_cast<unsigned char>(text[place]) & 0xC0) == 0x80) continue;
        if (trim(std::string_view(text).substr(place)).empty()) continue;  // an empty answer
        const Json row = Json::Object{{"prompt", text.substr(0, place)}, {"completion", text.substr(place)}};
        const Ids prompt = encoder.question_of(row).prompt;
        const EncodedRow encoded = encoder.encode(row);
        if (encoded.examples.empty()) continue;  // a byte without a token is the answer
        ++places;
        const Example& example = encoded.examples[0];
        ASSERT_GT(example.ids.size(), prompt.size()) << name << row.dump();
        const bool same = std::equal(prompt.begin(), prompt.end(), example.ids.begin());
        EXPECT_TRUE(same) << name << " " << row.dump();
        different += !same;
        for (size_t i = 0; i < prompt.size(); ++i) EXPECT_EQ(example.loss_mask[i], 0) << name << row.dump();
        EXPECT_EQ(example.loss_mask[prompt.size()], 1) << name << row.dump();
      }
    EXPECT_GT(places, 60);
    EXPECT_EQ(different, 0) << name;
  }
}

// A model writes no space that the text does not have.
TEST(AnswerTokens, NothingIsPutBeforeAnAnswerInsideAWord) {
  for (const std::string name : {"llama2", "llama2_legacy", "gpt2_prefixed", "unigram", "gemma"}) {
    const Tokenizer tokenizer = Tokenizer::load(TEMPER_SOURCE_DIR "/tests/goldens/tokenizer_" + name);
    const std::string text = "label: positive";
    for (size_t place = 1; place < text.size(); ++place) {
      const Ids ids = tokenizer.encode_parts(text, std::array{place}).ids;
      std::string printed = tokenizer.decode(ids);
      if (printed.starts_with(' ')) printed.erase(0, 1);
      EXPECT_EQ(printed, text) << name << " " << place;
    }
  }
}

constexpr std::string_view kBothBorders = R"({"messages": [{"role": "user", "content": "a"},
  {"role": "assistant", "content": "\nblue"}, {"role": "user", "content": "positive"},
  {"role": "assistant", "content": "\n\nuser"}]})";

TEST(AnswerTokens, WithLossAllBordersAreTheSame) {
  const EncodedRow row = encode_merging(renderer_from(kFolder), kBothBorders,
                                        border_options(Goal::kLanguageModel, LossOn::kAll));
  ASSERT_EQ(row.examples.size(), 1u);
  const Example& example = row.examples[0];
  EXPECT_EQ(example.num_targets(), example.size() - 1);
  EXPECT_EQ(std::count(example.ids.begin(), example.ids.end(), 278), 2);
  for (size_t i = 0; i + 1 < example.ids.size(); ++i)
    if (example.ids[i] == 278) {  // assistant
      EXPECT_EQ(example.ids[i + 1], 10);
    }
  const Example text = encode_merging(nullptr, R"({"prompt": "Label: ", "completion": "positive"})",
                                      border_options(Goal::kLanguageModel, LossOn::kAll))
                           .examples.at(0);
  EXPECT_EQ(text.num_targets(), 15);
}

TEST(AnswerTokens, TextsWithoutAPromptAreTokenizedWhole) {
  const Example example =
      encode_merging(nullptr, R"({"text": "Label: positive"})", border_options(Goal::kLanguageModel))
          .examples.at(0);
  EXPECT_EQ(example.ids, (Ids{76, 97, 98, 101, 108, 58, 263, kMergingEnd}));
}

TEST(AnswerTokens, ComparedAnswersHaveAllOfTheirTokens) {
  const Example pair =
      encode_merging(nullptr, R"({"prompt": "Label: ", "chosen": "positive", "rejected": "use"})",
                     border_options(Goal::kPairs))
          .examples.at(0);
  EXPECT_EQ(targets_of(pair), (std::vector<std::string>{"p", "o", "s", "i", "t", "i", "v", "e", "<|im_end|>",
                                                        "use", "<|im_end|>"}));
  const std::string rows =
      R"({"prompt": [{"role": "user", "content": "a"}], "chosen": [{"role": "assistant", "content": "\nblue"},
    {"role": "user", "content": "b"}, {"role": "assistant", "content": "c"}], "rejected": [{"role": "assistant", "content": "c"}]})";
  const std::string refusal =
      message_of([&] { encode_merging(renderer_from(kFolder), rows, border_options(Goal::kPairs)); });
  EXPECT_EQ(refusal.find("an earlier turn of the answer begins or ends in the middle of a token"), 0u)
      << refusal;
  EXPECT_EQ(
      encode_merging(renderer_from(kFolder), rows, border_options(Goal::kPairs, LossOn::kLastTurn)).status,
      RowStatus::kKept);
}

// The block holds the header that the generation prompt writes.
TEST(AnswerTokens, MarkedTurnsAreCutWhereTheyAreAskedFor) {
  const ChatRenderer render = renderer_with(
      "{%- for m in messages %}{%- if m.role == 'assistant' %}{% generation %}{{- '<|im_start|>assistant\\n' "
      "+ "
      "m.content + '<|im_end|>' }}{% endgeneration %}{%- else %}{{- '<|im_start|>' + m.role + '\\n' + "
      "m.content + "
      "'<|im_end|>' }}{%- endif %}{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' "
      "}}{%- endif %}");
  const Example example = answered(render, R"(\nblue)");
  EXPECT_EQ(example.ids, (Ids{281, 270, 10, 97, 282, 281, 278, 10, 10, 98, 108, 117, 101, 282}));
  EXPECT_EQ(targets_of(example).front(), "<|im_start|>");
}

// The headers of a turn and of its generation prompt differ inside a character.
TEST(AnswerTokens, TurnsBeginWithWholeCharacters) {
  const ChatRenderer render = renderer_with(
      "{%- for m in messages %}{%- if m.role == 'assistant' %}{{- '<|im_start|>\u0410 (\u043e): ' }}"
      "{%- else %}{{- '<|im_start|>' }}{%- endif %}{{- m.content + '<|im_end|>' }}{%- endfor %}"
      "{%- if add_generation_prompt %}{{- '<|im_start|>\u0410 (\u0434): ' }}{%- endif %}");
  const Example example = answered(render, R"(use)");
  std::string targets;
  for (const std::string& text : targets_of(example)) targets += text;
  EXPECT_EQ(targets, "\u043e): use<|im_end|>");
}

// Where words divide a text no beginning of it is encoded; the borders are the same.
TEST(AnswerTokens, BordersInTextsWithoutSpecialTokensAreThoseOfPrompts) {
  const ChatRenderer render = renderer_with(
      "{%- for m in messages %}{{- '### ' + m.role + ':' + m.content + '\n' }}{%- endfor %}"
      "{%- if add_generation_prompt %}{{- '### assistant:' }}{%- endif %}");
  const std::vector<std::string> said = {" a b  c", "x\ny",          " end ",    "\n\n",
                                         "1 2",     "\u5317 \u4eac", "use: blue"};
  for (const std::string name : {"qwen", "llama3", "o200k", "deepseek", "gpt2", "llama2", "gemma"}) {
    const Tokenizer tokenizer = Tokenizer::load(TEMPER_SOURCE_DIR "/tests/goldens/tokenizer_" + name);
    for (const std::string& first : said)
      for (const std::string& last : said) {
        Json::Array messages;
        for (const std::string& text : {first, last, first, last})
          messages.push_back(
              Json::Object{{"role", messages.size() % 2 == 0 ? "user" : "assistant"}, {"content", text}});
        if (trim(last).empty()) continue;  // no words to find
        const EncodedRow row =
            RowEncoder(tokenizer, render, RowOptions()).encode(Json::Object{{"messages", messages}});
        for (const size_t turn : {1, 3}) {
          const Json::Array until(messages.begin(), messages.begin() + static_cast<std::ptrdiff_t>(turn));
          const Ids prompt = tokenizer.encode(render(until, true, Json::Object()).text);
          const bool found =
              std::any_of(row.examples.begin(), row.examples.end(), [&](const Example& example) {
                return example.ids.size() > prompt.size() &&
                       std::equal(prompt.begin(), prompt.end(), example.ids.begin()) &&
                       example.loss_mask[prompt.size()] == 1 && example.loss_mask[prompt.size() - 1] == 0;
              });
          EXPECT_TRUE(found) << name << " " << Json(messages).dump() << turn;
        }
      }
  }
}

// Where nothing special ends a turn, its last token and the next turn's first may be one.
TEST(AnswerTokens, AnAnswerEndsBeforeTheNextTurnBegins) {
  const ChatRenderer render = renderer_with(
      "{%- for m in messages %}{%- if m.role == 'assistant' %}{% generation %}{{- m.content }}{% "
      "endgeneration %}"
      "{%- else %}{{- '\\n' + m.content + ':' }}{%- endif %}{%- endfor %}");
  const EncodedRow row = encode_merging(render, R"({"messages": [{"role": "user", "content": "a"},
    {"role": "assistant", "content": "use\n"}, {"role": "user", "content": "b"},
    {"role": "assistant", "content": " blue"}]})",
                                        border_options(Goal::kLanguageModel));
  ASSERT_EQ(row.examples.size(), 2u);
  EXPECT_EQ(row.examples[0].ids, (Ids{10, 97, 58, 269, 10}));
  EXPECT_EQ(targets_of(row.examples[0]), (std::vector<std::string>{"use", "\n"}));
  EXPECT_EQ(row.examples[1].ids, (Ids{10, 97, 58, 269, 279, 98, 58, 267}));
  EXPECT_EQ(targets_of(row.examples[1]), (std::vector<std::string>{" blue"}));
}

}  // namespace
}  // namespace temper::data
