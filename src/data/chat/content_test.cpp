#include "data/chat/content.h"

#include <gtest/gtest.h>

#include "data/sources/test_support.h"

namespace temper::data {
namespace {

using Runs = std::vector<std::string>;

EncodedRow encode(std::string_view row, RowOptions options = {}, ChatRenderer render = chatml()) {
  return RowEncoder(qwen(), std::move(render), std::move(options)).encode(Json::parse(row, "row"));
}

std::string text_of(const EncodedRow& row, size_t example = 0) {
  return qwen().decode(row.examples.at(example).ids);
}

std::string error_of(std::string_view row, const RowOptions& options = {}) {
  return message_of([&] { encode(row, options); });
}

RowOptions any() {
  RowOptions options;
  options.goal = Goal::kAny;
  return options;
}

TEST(Formats, AreFoundByTheFields) {
  const std::vector<std::pair<std::string, RowFormat>> cases = {
      {R"({"messages": [{"role": "user", "content": "a"}]})", RowFormat::kMessages},
      {R"({"conversations": [{"role": "user", "content": "a"}]})", RowFormat::kMessages},
      {R"({"conversations": [{"from": "human", "value": "a"}], "id": 3})", RowFormat::kShareGpt},
      {R"({"messages": [{"from": "human", "value": "a"}]})", RowFormat::kShareGpt},
      {R"({"instruction": "a", "input": "", "output": "b"})", RowFormat::kAlpaca},
      {R"({"prompt": "a", "completion": "b", "text": null})", RowFormat::kPromptCompletion},
      {R"({"text": "a", "url": "b"})", RowFormat::kText},
      {R"({"text": "a", "label": 0})", RowFormat::kClassification},
      {R"({"prompt": "a", "chosen": "b", "rejected": "c"})", RowFormat::kPreference},
      {R"({"chosen": [], "rejected": []})", RowFormat::kPreference},
      {R"({"prompt": "a", "answer": 42})", RowFormat::kPromptOnly},
  };
  for (const auto& [row, format] : cases) EXPECT_EQ(format_of(Json::parse(row, "row")), format) << row;
}

// In conversations and prompts a picture is refused; in rows of plain text it is metadata.
TEST(Formats, MediaAreRefusedWhereTextSpeaksOfThem) {
  const std::string media = R"("image": "https://x.org/a.jpg")";
  RowOptions options = any();
  options.labels = {"no", "yes"};
  for (const char* row :
       {R"({"text": "News.", )", R"({"text": "News.", "label": 1, )", R"({"input_ids": [5, 6], )"}) {
    const EncodedRow found = encode(row + media + "}", options);
    EXPECT_EQ(found.status, RowStatus::kKept) << row;
    EXPECT_EQ(found.unused, Runs{"image"}) << row;
  }
  for (const char* row :
       {R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], )",
        R"({"prompt": "a", "completion": "b", )", R"({"prompt": "a", )",
        R"({"instruction": "a", "output": "b", )", R"({"prompt": "a", "chosen": "b", "rejected": "c", )"})
    EXPECT_EQ(
        error_of(row + media + "}", any()),
        "has image, which is not read: models learn from text alone; leave such rows out, or remove the "
        "field where the text makes sense without it")
        << row;
}

TEST(Formats, ShareGptBecomesAConversation) {
  const std::string row = R"({"system": "Be brief.", "conversations": [{"from": "human", "value": "2+2?"},
    {"from": "function_call", "value": "{\"name\": \"add\", \"arguments\": {\"a\": 2}}"},
    {"from": "observation", "value": "4"}, {"from": "gpt", "value": "It is 4."}]})";
  const EncodedRow encoded = encode(row);
  EXPECT_EQ(
      text_of(encoded),
      "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n"
      "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 2}}\n</tool_call><|im_end|>\n"
      "<|im_start|>tool\n4<|im_end|>\n<|im_start|>assistant\nIt is 4.<|im_end|>\n");
  EXPECT_EQ(target_runs(encoded.examples[0]).size(), 2u);
  EXPECT_EQ(
      error_of(R"({"conversations": [{"from": "alien", "value": "a"}]})"),
      "conversations[0].from is 'alien', expected human, gpt, system, function_call, observation or tool");
  EXPECT_EQ(error_of(R"({"conversations": [{"from": "human", "text": "a"}]})"),
            "conversations[0] must have from and value (fields: from, text)");
  EXPECT_EQ(error_of(R"({"conversations": [{"from": "function_call", "value": "add 1"}]})"),
            "conversations[0].value is a text that is not valid JSON");
}

TEST(Formats, AlpacaIsAQuestionAndItsAnswer) {
  const std::string row = R"({"instruction": "Add.", "input": "1 2", "output": "3", "system": "Be brief.",
    "history": [["Add.\n\n0 0", "0"]]})";
  EXPECT_EQ(target_runs(encode(row).examples[0]), Runs{"3<|im_end|>"});
  EXPECT_NE(text_of(encode(row)).find("user\nAdd.\n\n1 2<|im_end|>"), std::string::npos);
  const EncodedRow plain = encode(row, {}, nullptr);
  EXPECT_EQ(text_of(plain), "Be brief.\n\nAdd.\n\n0 0\n\n0\n\nAdd.\n\n1 2\n\n3");
  EXPECT_EQ(target_runs(plain.examples[0]), Runs{"3"});
  for (const auto& [history, expected] : std::vector<std::pair<std::string, std::string>>{
           {"3", "history must be an array, found an integer"},
           {R"([["a"]])", R"(history must hold pairs, [question, answer], found ["a"])"},
           {R"(["a"])", R"(history must hold pairs, [question, answer], found "a")"},
           {R"([["a", 3]])", "history[][1] must be a string, found an integer"}})
    EXPECT_EQ(error_of(R"({"instruction": "a", "output": "b", "history": )" + history + "}"), expected);
}

TEST(Formats, ClassesAreAnsweredByName) {
  RowOptions options;
  options.labels = {"bad", "good"};
  EXPECT_EQ(target_runs(encode(R"({"text": "Great!", "label": 1})", options).examples[0]),
            Runs{"good<|im_end|>"});
  EXPECT_EQ(target_runs(encode(R"({"text": "Great!", "label": "fine"})").examples[0]),
            Runs{"fine<|im_end|>"});
  EXPECT_EQ(target_runs(encode(R"({"text": "Great!", "label": 0})", options, nullptr).examples[0]),
            Runs{"bad"});
  // A number in a table of texts is a number; other texts are answers.
  for (const auto& [label, answer] : std::vector<std::pair<std::string, std::string>>{
           {"1", "good"}, {"good", "good"}, {"1 star", "1 star"}, {"0123456789", "0123456789"}})
    EXPECT_EQ(target_runs(encode(R"({"text": "Great!", "label": ")" + label + R"("})", options).examples[0]),
              Runs{answer + "<|im_end|>"});
  EXPECT_EQ(encode(R"({"text": "Great!", "label": ""})", options).status, RowStatus::kEmptyAnswer);
  EXPECT_EQ(error_of(R"({"text": "a", "label": true})", options),
            "label must be a string or a number of a class, found a boolean");
  EXPECT_EQ(error_of(R"({"text": "a", "label": -1})", options),
            "label is -1, expected 0 to 1, for which there are names");
  EXPECT_EQ(error_of(R"({"text": "a", "label": 2})", options),
            "label is 2, expected 0 to 1, for which there are names");
  EXPECT_EQ(error_of(R"({"text": "a", "label": null})"),
            "label is null; leave the row out, or set data.train[].format: text");
  EXPECT_EQ(error_of(R"({"text": "a", "label": 1})"),
            "label is 1, but the classes have no names; list them in data.train[].labels");
  options.format = RowFormat::kText;  // the label does not matter
  EXPECT_EQ(text_of(encode(R"({"text": "Great!", "label": 1})", options)), "Great!");
}

TEST(Formats, ColumnsMayHaveOtherNames) {
  RowOptions options;
  options.columns = {{"messages", "dialog"}, {"role", "speaker"}, {"content", "utterance"}};
  const std::string row = R"({"messages": 3, "dialog": [{"speaker": "user", "utterance": "a"},
    {"speaker": "assistant", "utterance": "b"}]})";
  EXPECT_EQ(target_runs(encode(row, options).examples[0]), Runs{"b<|im_end|>"});
  options.columns = {{"prompt", "question"}, {"completion", "answer"}};
  EXPECT_EQ(target_runs(encode(R"({"question": "a\n", "answer": "b"})", options).examples[0]), Runs{"b"});
  EXPECT_EQ(error_of(R"({"question": "a "})", options),
            "there is no column 'answer', which columns.completion names (fields: question)");
}

TEST(Formats, ColumnsMayTradeNames) {
  RowOptions options;
  options.columns = {{"instruction", "input"}, {"input", "context"}};
  const EncodedRow row = encode(R"({"input": "Who?", "context": "Ada.", "output": "42"})", options);
  EXPECT_NE(text_of(row).find("user\nWho?\n\nAda.<|im_end|>"), std::string::npos) << text_of(row);
  options.columns = {{"text", "label"}, {"label", "text"}};
  EXPECT_EQ(target_runs(encode(R"({"text": "good", "label": "Great!"})", options).examples[0]),
            Runs{"good<|im_end|>"});
  options.columns = {{"content", "text"}};
  Json seen;
  const ChatRenderer watch = [&](const Json& messages, bool prompt, const Json& extra) {
    seen = extra;
    return chatml()(messages, prompt, Json::Object{});
  };
  encode(R"({"messages": [{"role": "assistant", "text": "b"}], "documents": [{"text": "d"}]})", options,
         watch);
  EXPECT_EQ(seen.dump(), R"({"documents": [{"text": "d"}]})");
}

TEST(Formats, APromptStandsBeforeWhatTheAnswersShare) {
  const EncodedRow system = encode(R"({"prompt": [{"role": "system", "content": "Pirate."}],
    "chosen": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "arr"}],
    "rejected": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]})",
                                   any());
  EXPECT_EQ(text_of(system).find("<|im_start|>system\nPirate."), 0u) << text_of(system);
  EXPECT_EQ(target_runs(system.examples[1]), Runs{"hello<|im_end|>"});
  const EncodedRow turns = encode(R"({"prompt": "q?",
    "chosen": [{"role": "assistant", "content": "A"}, {"role": "user", "content": "B"}, {"role": "assistant", "content": "C"}],
    "rejected": [{"role": "assistant", "content": "A"}, {"role": "user", "content": "B"}, {"role": "assistant", "content": "D"}]})",
                                  any());
  EXPECT_EQ(text_of(turns).find("<|im_start|>user\nq?"), 0u) << text_of(turns);
  EXPECT_EQ(target_runs(turns.examples[0]), Runs{"C<|im_end|>"});
}

TEST(Formats, PreferencesShareTheirPrompt) {
  const std::string texts = R"({"prompt": "1+1=", "chosen": "2", "rejected": "3"})";
  const std::string apart = R"({"prompt": [{"role": "user", "content": "1+1?"}],
    "chosen": [{"role": "assistant", "content": "2"}], "rejected": [{"role": "assistant", "content": "3"}]})";
  const std::string implicit =
      R"({"chosen": [{"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "2"}],
    "rejected": [{"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "3"}]})";
  const std::string question = R"({"prompt": "1+1?", "chosen": [{"role": "assistant", "content": "2"}],
    "rejected": [{"role": "assistant", "content": "3"}]})";
  for (const std::string& row : {texts, apart, implicit, question}) {
    const EncodedRow pair = encode(row, any());
    ASSERT_EQ(pair.examples.size(), 2u);
    EXPECT_EQ(target_runs(pair.examples[0])[0][0], '2');
    EXPECT_EQ(target_runs(pair.examples[1])[0][0], '3');
    EXPECT_NE(error_of(row).find("learn_chosen: true"), std::string::npos);
    RowOptions chosen;
    chosen.learn_chosen = true;
    EXPECT_EQ(encode(row, chosen).examples.size(), 1u);
    EXPECT_EQ(text_of(encode(row, chosen)), text_of(pair));
  }
  EXPECT_EQ(text_of(encode(apart, any())), text_of(encode(implicit, any())));
  EXPECT_EQ(text_of(encode(question, any())), text_of(encode(implicit, any())));
  const EncodedRow dialog = encode(
      R"({"chosen": "Human: hi\n\nAssistant: Hello there", "rejected": "Human: hi\n\nAssistant: Go away"})",
      any());
  EXPECT_EQ(target_runs(dialog.examples[0]), Runs{" Hello there"});
  EXPECT_EQ(target_runs(dialog.examples[1]), Runs{" Go away"});
}

// Where the answers share messages a prompt that is among them is not said again.
TEST(Formats, APromptThatBothAnswersHoldStandsThereOnce) {
  const auto text = [](const std::string& prompt, const std::string& first) {
    const std::string row = R"({"prompt": )" + prompt + R"(, "chosen": [)" + first +
                            R"(, {"role": "assistant", "content": "b"}], "rejected": [)" + first +
                            R"(, {"role": "assistant", "content": "c"}]})";
    return text_of(encode(row, any()));
  };
  const std::string user = R"({"role": "user", "content": "a"})",
                    calls = R"({"role": "user", "tool_calls": [{"function": {"name": "f"}}]})";
  const std::string once = "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n";
  EXPECT_EQ(text(R"("a")", user), once);
  EXPECT_EQ(text("[" + user + "]", user), once);
  EXPECT_EQ(text(R"("q")", user), "<|im_start|>user\nq<|im_end|>\n" + once);
  EXPECT_EQ(text(R"([{"role": "user", "content": "q"}])", user), "<|im_start|>user\nq<|im_end|>\n" + once);
  EXPECT_TRUE(text(R"("a")", calls).starts_with("<|im_start|>user\na<|im_end|>\n<|im_start|>user\n<tool"));
  // Of texts that share white space alone all is an answer.
  EXPECT_EQ(target_runs(encode(R"({"chosen": " b d", "rejected": " c d"})", any()).examples.at(0)),
            Runs{" b d"});
}

TEST(Formats, WhatARowIsSaidToBeItMustHold) {
  RowOptions options;
  for (const auto& [format, expected] : std::vector<std::pair<RowFormat, std::string>>{
           {RowFormat::kMessages, "messages is missing (fields: other)"},
           {RowFormat::kShareGpt, "messages is missing (fields: other)"},
           {RowFormat::kAlpaca, "instruction is missing (fields: other)"},
           {RowFormat::kText, "text is missing (fields: other)"},
           {RowFormat::kClassification, "text is missing (fields: other)"},
           {RowFormat::kTokens, "input_ids is missing (fields: other)"}}) {
    options.format = format;
    EXPECT_EQ(error_of(R"({"other": 1})", options), expected);
  }
  options.format = RowFormat::kPromptCompletion;
  EXPECT_EQ(error_of(R"({"prompt": "a"})", options), "completion is missing (fields: prompt)");
  const std::vector<Content> read =
      read_content(Json::parse(R"({"text": "a"})", "row"), RowFormat::kAuto, false, {});
  ASSERT_EQ(read.size(), 1u);
  EXPECT_EQ(read[0].text, "a");
}

TEST(Formats, BrokenPreferences) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"prompt": "a", "chosen": "b", "rejected": "b"})",
       "chosen and rejected are the same; expected two answers that differ"},
      {R"({"prompt": "a", "chosen": "b"})",
       "rejected is missing although chosen is present (fields: prompt, chosen); "},
      {R"({"chosen": "b", "rejected": "c"})",
       "there is no prompt, and chosen and rejected have no beginning in common that could be one"},
      {R"({"chosen": [{"role": "user", "content": "a"}], "rejected": [{"role": "user", "content": "a"},
         {"role": "assistant", "content": "b"}]})",
       "chosen has no answer after the prompt"},
      {R"({"chosen": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}],
         "rejected": [{"role": "user", "content": "a"}]})",
       "rejected has no answer after the prompt"},
      {R"({"chosen": [{"role": "assistant", "content": "a"}], "rejected": [{"role": "user", "content": "a"}]})",
       "there is no prompt, and chosen and rejected have no message in common"},
      {R"({"prompt": 3, "chosen": [{"role": "assistant", "content": "a"}],
         "rejected": [{"role": "assistant", "content": "b"}]})",
       "prompt must be an array, found an integer"},
      {R"({"chosen": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}],
         "rejected": [{"role": "user", "content": "a"}, {"role": "user", "content": "c"}]})",
       "chosen and rejected differ at [1], which is not the assistant's"},
  };
  for (const auto& [row, expected] : cases)
    EXPECT_TRUE(error_of(row, any()).starts_with(expected)) << error_of(row, any());
}

TEST(Formats, PromptsAloneEndWhereTheAnswerBegins) {
  EXPECT_EQ(text_of(encode(R"({"prompt": [{"role": "user", "content": "a"}], "answer": 1})", any())),
            "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n");
  RowOptions options = any();
  options.eos_id = 3000;
  EXPECT_EQ(text_of(encode(R"({"prompt": "a b"})", options)), "a b");
  EXPECT_EQ(error_of(R"({"prompt": ""})", any()), "prompt is empty");
  EXPECT_EQ(error_of(R"({"prompt": 3})", any()),
            "prompt must be a string or a list of messages, found an integer");
  const Json row = Json::parse(R"({"id": 3, "prompt": "a", "answer": {"value": 42}})", "row");
  EXPECT_EQ(beside_prompt(row).dump(), R"({"id": 3, "answer": {"value": 42}})");
}

TEST(Formats, PartsOfTextAreOneText) {
  EXPECT_EQ(target_runs(encode(R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]},
    {"role": "assistant", "content": [{"type": "text", "text": "b"}, {"type": "text", "text": "c"}]}]})")
                            .examples[0]),
            Runs{"bc<|im_end|>"});
  EXPECT_EQ(error_of(R"({"messages": [{"role": "user", "content": [{"type": "image", "url": "x"}]}]})"),
            "messages[0].content[0].type is \"image\"; only text can be trained on");
}

TEST(Formats, MessagesOfNoWeightAreNotLearnt) {
  const std::string row = R"({"messages": [{"role": "user", "content": "a"},
    {"role": "assistant", "content": "b", "weight": 0}, {"role": "user", "content": "c"},
    {"role": "assistant", "content": "d", "weight": 1}]})";
  for (const ChatRenderer& render : {chatml(), chatml_marked()})
    EXPECT_EQ(target_runs(encode(row, {}, render).examples[0]), Runs{"d<|im_end|>"});
  EXPECT_EQ(error_of(R"({"messages": [{"role": "assistant", "content": "b", "weight": 0.5}]})"),
            "messages[0].weight is 0.5, expected 0 or 1");
  RowOptions all;
  all.loss = LossOn::kAll;
  EXPECT_EQ(error_of(row, all), "messages[1].weight is 0, but with loss: all every token is a target");
}

TEST(Formats, RowsMayBringVariablesOfTheTemplate) {
  Json seen;
  const ChatRenderer watch = [&](const Json& messages, bool prompt, const Json& extra) {
    seen = extra;
    return chatml()(messages, prompt, Json::Object{});
  };
  RowOptions options;
  options.template_extra = Json::Object{{"enable_thinking", true}, {"date", "today"}};
  encode(R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}],
    "tools": "[{\"name\": \"add\"}]", "chat_template_kwargs": {"enable_thinking": false}})",
         options, watch);
  EXPECT_EQ(seen.dump(), R"({"enable_thinking": false, "date": "today", "tools": [{"name": "add"}]})");
}

}  // namespace
}  // namespace temper::data
