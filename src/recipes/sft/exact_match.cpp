#include "recipes/sft/exact_match.h"

#include <algorithm>

#include "base/error.h"
#include "base/threads.h"

namespace temper::recipes {
namespace {

struct Question {
  std::vector<int32_t> prompt;
  std::string text, expected;
};

Question question_of(const data::Content& content, const Json& variables, const rollout::TextFiles& text) {
  if (content.chat && content.messages.size() >= 2 &&
      content.messages.back().at("role") == Json("assistant")) {
    Json::Array before = content.messages;
    const Json last = before.back();
    before.pop_back();
    return {text.tokenizer.encode(text.chat_prompt(before, variables)),
            before.back().at("content").as_string(), std::string(data::trim(last.at("content").as_string()))};
  }
  if (!content.chat && content.target_begin > 0) {
    const std::string prompt = content.text.substr(0, content.target_begin);
    return {text.tokenizer.encode(prompt, true), prompt,
            std::string(data::trim(std::string_view(content.text).substr(content.target_begin)))};
  }
  fail("eval.exact_match needs rows that end with an assistant's answer, or with a completion");
}

Question question_of(const data::Mixture& rows, int64_t row, const rollout::TextFiles& text) {
  try {
    const data::RowEncoder& encoder = *rows.members()[rows.member_of(row)].encoder;
    return question_of(encoder.contents_of(rows.json(row)).at(0), encoder.options().template_extra, text);
  } catch (const Error& error) {
    fail("[{}] {}", rows.place(row), error.what());
  }
}

}  // namespace

std::vector<Answer> answer_questions(const Session& session, int64_t count) {
  const data::Mixture& rows = *session.data.eval;
  std::vector<Answer> answers(static_cast<size_t>(std::min(count, rows.size())));
  std::vector<Question> questions;
  int64_t longest = 0;
  for (int64_t i = 0; i < static_cast<int64_t>(answers.size()); ++i) {
    questions.push_back(question_of(rows, i, session.text));
    longest = std::max(longest, static_cast<int64_t>(questions.back().prompt.size()));
  }
  rollout::GenerateOptions options;
  options.max_new_tokens = session.config.eval.max_new_tokens;
  options.stop_ids = session.text.generation.stop_ids;
  const layers::Decoder& decoder = session.model->decoder;
  decoder.prepare_positions(std::min(longest + options.max_new_tokens, decoder.config().max_positions));
  const auto answer = [&](rollout::Generator& generator, int64_t i) {
    const Question& question = questions[static_cast<size_t>(i)];
    const rollout::Generation result = generator.generate(question.prompt, options);
    const std::string found = session.text.tokenizer.decode(result.ids, true);
    answers[static_cast<size_t>(i)] = {question.text, question.expected, std::string(data::trim(found))};
  };
  const auto count_all = static_cast<int64_t>(answers.size());
  if (decoder.device().type != DeviceType::kCpu) {  // which serves one generator at a time
    rollout::Generator generator(decoder);
    for (int64_t i = 0; i < count_all; ++i) answer(generator, i);
    return answers;
  }
  // One question per task: small models gain more from this than from threads inside an op.
  parallel_for(count_all, [&](int64_t i) {
    rollout::Generator generator(decoder);
    answer(generator, i);
  });
  return answers;
}

double accuracy(const std::vector<Answer>& answers) {
  if (answers.empty()) return 0;
  const auto correct =
      std::count_if(answers.begin(), answers.end(), [](const Answer& a) { return a.correct(); });
  return static_cast<double>(correct) / static_cast<double>(answers.size());
}

}  // namespace temper::recipes
