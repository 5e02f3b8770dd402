#include <gtest/gtest.h>

#include <algorithm>

#include "data/chat/chat_template.h"
#include "data/rows/pack.h"
#include "data/rows/picture_test_support.h"
#include "data/sources/test_support.h"
#include "tests/support/errors.h"

namespace temper::data {
namespace {

RowOptions with_pictures() {
  RowOptions options;
  options.pictures = counted_pictures();
  return options;
}

EncodedRow encode_seen(const std::string& row, const RowOptions& options = with_pictures(),
                       ChatRenderer render = chatml_with_pictures()) {
  return RowEncoder(seeing(), std::move(render), options).encode(Json::parse(row, "row"), "/data");
}

std::string refusal_of_seen(const std::string& row, const RowOptions& options = with_pictures(),
                            ChatRenderer render = chatml_with_pictures()) {
  return message_of([&] { encode_seen(row, options, std::move(render)); });
}

// Text with pads as one character each.
std::string seen_text(const Example& example) {
  std::string text;
  for (const int32_t id : example.ids) text += id == kPad ? "#" : std::string(seeing().token_bytes(id));
  return text;
}

std::string seen_targets(const Example& example) {
  std::string text;
  for (size_t i = 0; i < example.ids.size(); ++i)
    if (example.loss_mask[i]) text += seeing().token_bytes(example.ids[i]);
  return text;
}

// Places, sizes and files of pictures, whose tokens must be pads and the only ones.
template <class Tokens>
std::string seen_pictures(const Tokens& tokens) {
  std::string text;
  int64_t pads = 0;
  for (const PlacedPicture& picture : tokens.pictures) {
    for (int64_t i = picture.first; i < picture.end(); ++i)
      EXPECT_EQ(tokens.ids.at(static_cast<size_t>(i)), kPad);
    EXPECT_EQ(tokens.ids.at(static_cast<size_t>(picture.first - 1)), kStart);
    EXPECT_EQ(picture.shape.grid, (preprocessing::Grid{1, 2, 2 * picture.shape.tokens}));
    EXPECT_EQ(picture.file->folder, "/data");
    pads += picture.shape.tokens;
    text += fmt::format("{}{}", text.empty() ? "" : " ", picture.file->reference.path);
  }
  EXPECT_EQ(std::count(tokens.ids.begin(), tokens.ids.end(), kPad), pads);
  return text;
}

constexpr const char* kTwo = R"({"images": ["3.png", "2.png"], "messages": [
  {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "Is it "}, {"type": "image"}]},
  {"role": "assistant", "content": "No."}, {"role": "user", "content": "Sure?"},
  {"role": "assistant", "content": "Yes."}]})";

TEST(PictureRows, HaveAPadForEachTokenOfAPicture) {
  const EncodedRow row = encode_seen(kTwo);
  const Example& example = row.examples.at(0);
  EXPECT_EQ(seen_text(example),
            "<|im_start|>user\n<|vision_start|>###<|vision_end|>Is it <|vision_start|>##<|vision_end|>"
            "<|im_end|>\n<|im_start|>assistant\nNo.<|im_end|>\n<|im_start|>user\nSure?<|im_end|>\n"
            "<|im_start|>assistant\nYes.<|im_end|>\n");
  EXPECT_EQ(seen_pictures(example), "3.png 2.png");
  EXPECT_EQ(seen_targets(example), "No.<|im_end|>Yes.<|im_end|>");
  EXPECT_EQ(row.full_length, example.size());
  EXPECT_EQ(row.lost, std::vector<std::string>());
  EXPECT_EQ(row.unused, std::vector<std::string>());
}

TEST(PictureRows, OfAllFormsAreTheSame) {
  const std::string answer = R"({"role": "assistant", "content": "A cat."}]})";
  const Example expected = encode_seen(R"({"images": ["3.png"], "messages": [{"role": "user", "content":
    [{"type": "image"}, {"type": "text", "text": "\nWhat?"}]}, )" +
                                       answer)
                               .examples.at(0);
  EXPECT_EQ(seen_pictures(expected), "3.png");
  for (const std::string& form :
       {R"({"messages": [{"role": "user", "content": [{"type": "image", "image": "3.png"},
          {"type": "text", "text": "\nWhat?"}]}, )" +
            answer,
        R"({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "3.png"}},
          {"type": "text", "text": "\nWhat?"}]}, )" +
            answer,
        R"({"images": ["3.png"], "messages": [{"role": "user", "content": "<image>\nWhat?"}, )" + answer,
        std::string(R"({"image": "3.png", "conversations": [{"from": "human", "value": "<image>\nWhat?"},
          {"from": "gpt", "value": "A cat."}]})"),
        std::string(R"({"images": "3.png", "instruction": "<image>", "input": "", "output": "A cat.",
          "history": []})")}) {
    const EncodedRow row = encode_seen(form);
    EXPECT_EQ(seen_pictures(row.examples.at(0)), "3.png");
    EXPECT_EQ(row.lost, std::vector<std::string>()) << form;
    EXPECT_EQ(row.unused, std::vector<std::string>()) << form;
    if (form.find("instruction") == std::string::npos) {
      EXPECT_EQ(seen_text(row.examples[0]), seen_text(expected)) << form;
      EXPECT_EQ(row.examples[0].loss_mask, expected.loss_mask) << form;
    }
  }
}

TEST(PictureRows, OfTextsHaveTheTokensAroundPictures) {
  const Example pair =
      encode_seen(R"({"images": ["2.png"], "prompt": "See <image>", "completion": "cat"})").examples.at(0);
  EXPECT_EQ(seen_text(pair), "See <|vision_start|>##<|vision_end|>cat");
  EXPECT_EQ(seen_targets(pair), "cat");
  // The first word behind a picture is predicted from the end token.
  EXPECT_EQ(pair.ids.at(static_cast<size_t>(pair.pictures.at(0).end())), kEnd);
  EXPECT_EQ(pair.loss_mask.at(static_cast<size_t>(pair.pictures.at(0).end()) + 1), 1);
  EXPECT_EQ(seen_pictures(pair), "2.png");
  const Example text = encode_seen(R"({"image": "4.png", "text": "a<image>b"})").examples.at(0);
  EXPECT_EQ(seen_targets(text), "ab");
  EXPECT_EQ(seen_text(text), "a<|vision_start|>####<|vision_end|>b");
  // Next to a text that names none a picture is metadata.
  const EncodedRow metadata = encode_seen(R"({"image": "4.png", "text": "a b c"})");
  EXPECT_TRUE(metadata.examples.at(0).pictures.empty());
  EXPECT_EQ(metadata.unused, std::vector<std::string>{"image"});
}

TEST(PictureRows, PadsAreNoTargetsEvenWhereAllTokensAre) {
  RowOptions options = with_pictures();
  options.loss = LossOn::kAll;
  const Example example = encode_seen(kTwo, options).examples.at(0);
  for (size_t i = 0; i < example.ids.size(); ++i) EXPECT_EQ(example.loss_mask[i], example.ids[i] < kPad) << i;
  // An answer with a picture.
  EXPECT_EQ(
      seen_targets(encode_seen(R"({"images": ["2.png"], "prompt": "Draw", "completion": " it: <image>."})")
                       .examples.at(0)),
      " it: .");
}

// Whose template leaves the thinking of earlier turns out: each answer has a text of its own.
TEST(PictureRows, OfSeveralTextsHaveThePicturesUpToTheirEnd) {
  const std::string source =
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.content is string %}{% if m.role == "
      "'assistant' "
      "and loop.last %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}{% else %}"
      "{% for part in m.content %}{% if part.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
      "{% else %}{{ part.text }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
      "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
  const ChatRenderer render = renderer_of(std::make_shared<templates::ChatTemplate>(
      templates::ChatTemplate{templates::Template::parse(source, "t"), Json::Object(), source}));
  const EncodedRow row = encode_seen(R"({"images": ["1.png", "2.png"], "messages": [
    {"role": "user", "content": "<image>"}, {"role": "assistant", "content": "A", "reasoning_content": "x"},
    {"role": "user", "content": "<image>"}, {"role": "assistant", "content": "B", "reasoning_content": "y"}]})",
                                     with_pictures(), render);
  ASSERT_EQ(row.examples.size(), 2U);
  EXPECT_EQ(seen_pictures(row.examples[0]), "1.png");
  EXPECT_EQ(seen_pictures(row.examples[1]), "1.png 2.png");
}

TEST(PictureRows, AreRefusedWhereTextAndPicturesDiffer) {
  const std::string question = R"({"images": ["1.png"], "messages": [{"role": "user", "content": ")",
                    answer = R"("}, {"role": "assistant", "content": "No."}]})";
  expect_has(refusal_of_seen(question + "What?" + answer),
             "the number of pictures in images is 1, and the text names 0");
  expect_has(refusal_of_seen(question + "<image><image>" + answer), "the text names 2");
  expect_has(refusal_of_seen(question + "<image><|image_pad|>" + answer),
             "has 1 pictures, and its text has <|image_pad|> 2 times");
  expect_has(
      refusal_of_seen(R"({"messages": [{"role": "user", "content": "<|image_pad|><|image_pad|>)" + answer),
      "has 0 pictures, and its text has <|image_pad|> 2 times");
  expect_has(refusal_of_seen(R"({"prompt": "a<|image_pad|>", "completion": "b"})"),
             "has the token <|image_pad|> (id 3005) 1 times and 0 pictures");
  expect_has(refusal_of_seen(R"({"input_ids": [5, 3006, 3005, 3005, 3007, 6]})"),
             "has the token <|image_pad|> (id 3005) 2 times and 0 pictures");
  const ChatRenderer blind = [](const Json& /*messages*/, bool /*prompt*/, const Json& /*extra*/) {
    return RenderedChat{"<|im_start|>user\n<|im_end|>\n"};
  };
  expect_has(refusal_of_seen(question + "<image>" + answer, with_pictures(), blind),
             "has 1 pictures, and its text has <|image_pad|> 0 times");
  RowOptions text = with_pictures();
  text.format = RowFormat::kPromptCompletion;
  expect_has(refusal_of_seen(R"({"images": ["1.png"], "messages": [{"role": "user", "content": "<image>"}],
                     "prompt": "a", "completion": "b"})",
                             text),
             "the row names 1 pictures, and 0 of them are in the text");
  expect_has(refusal_of_seen(R"({"images": ["missing.png"], "prompt": "<image>", "completion": "b"})"),
             "images[0]: [missing.png] is not there");
}

TEST(PictureRows, AreRefusedByModelsOfText) {
  for (const char* row : {kTwo, R"({"images": ["1.png"], "prompt": "<image>", "completion": "b"})"})
    expect_has(refusal_of_seen(row, RowOptions()),
               "has images, which is not read: models learn from text alone");
}

TEST(PictureRows, TokensMustBeThoseOfTheTokenizer) {
  RowOptions options = with_pictures();
  options.pictures->end = 3009;
  expect_has(message_of([&] { RowEncoder(seeing(), nullptr, options); }),
             "vision_end_token_id is 3009, which in the tokenizer is no token");
  const Json config =
      Json::parse(R"({"image_token_id": 3, "vision_start_token_id": 4, "vision_end_token_id": "x"})", "");
  expect_has(message_of([&] { picture_tokens_of(config, "config.json"); }),
             "[config.json] vision_end_token_id is \"x\", expected the id of a token");
}

// However long rows may be: all pictures are whole, or the row is counted as too long, or refused.
TEST(PictureRows, ArePictureByPictureWholeOrLeftOut) {
  const Example whole = encode_seen(kTwo).examples.at(0);
  const int64_t last_pad = whole.pictures.back().end();
  int64_t kept = 0, left_out = 0;
  for (int64_t limit = 1; limit <= whole.size() + 1; ++limit)
    for (const Overflow overflow :
         {Overflow::kTruncate, Overflow::kSplit, Overflow::kDrop, Overflow::kError}) {
      RowOptions options = with_pictures();
      options.max_length = limit;
      options.overflow = overflow;
      if (overflow == Overflow::kError && limit < whole.size()) {
        expect_has(refusal_of_seen(kTwo, options), fmt::format("max_length is {}", limit));
        continue;
      }
      const EncodedRow row = encode_seen(kTwo, options);
      const bool fits = limit >= whole.size();
      const bool is_cut = !fits && overflow == Overflow::kTruncate && limit >= last_pad;
      if (!fits && !is_cut) {
        EXPECT_EQ(row.status, RowStatus::kTooLong) << limit;
        EXPECT_TRUE(row.examples.empty());
        ++left_out;
        continue;
      }
      if (row.status == RowStatus::kNoTargets) continue;  // cut before the answer
      ASSERT_EQ(row.examples.size(), 1U);
      EXPECT_EQ(seen_pictures(row.examples[0]), "3.png 2.png");
      EXPECT_EQ(row.examples[0].size(), std::min(limit, whole.size()));
      ++kept;
    }
  EXPECT_GT(kept, 6);
  EXPECT_GT(left_out, 3 * 15);
}

TEST(PictureRows, OfPairsAreSharedWithThePrompt) {
  const char* pair = R"({"images": ["3.png"], "prompt": [{"role": "user", "content": "Hm <image>"}],
    "chosen": [{"role": "assistant", "content": "A cat."}], "rejected": [{"role": "assistant", "content": "Dog"}]})";
  RowOptions options = with_pictures();
  options.goal = Goal::kPairs;
  const Example once = encode_seen(pair, options).examples.at(0);
  EXPECT_EQ(seen_pictures(once), "3.png");
  options.share_prompts = false;
  const Example twice = encode_seen(pair, options).examples.at(0);
  EXPECT_EQ(seen_pictures(twice), "3.png 3.png");
  EXPECT_EQ(twice.pictures[1].first - twice.pictures[0].first, twice.answers.at(0).length);
}

TEST(PictureRows, ArePackedWithTheirPlaces) {
  const std::string alone = R"({"images": ["1.png"], "prompt": "<image>", "completion": "b"})";
  const std::string text = R"({"prompt": "none", "completion": "b"})";
  std::vector<Document> documents;
  int64_t number = 7;
  for (const std::string& row : {text, std::string(kTwo), text, alone})
    documents.push_back({number++, 0, 0, encode_seen(row).examples.at(0)});
  const PackedRow packed = pack(documents);
  EXPECT_EQ(seen_pictures(packed), "3.png 2.png 1.png");
  EXPECT_EQ(packed.pictures[0].row, 8);
  EXPECT_EQ(packed.pictures[2].row, 10);
  EXPECT_EQ(packed.size(), num_tokens(documents));
  for (size_t i = 0; i < packed.ids.size(); ++i) EXPECT_LT(packed.targets[i], kPad);
}

}  // namespace
}  // namespace temper::data
