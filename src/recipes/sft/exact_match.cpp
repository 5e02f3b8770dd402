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

Question question_of(const Json& row, const std::string& place, const rollout::TextFiles& text) {
  const Json* messages = row.find("messages");
  if (messages != nullptr && messages->is_array() && messages->as_array().size() >= 2) {
    Json::Array before = messages->as_array();
    const Json last = before.back();
    before.pop_back();
    if (last.at("role") == Json("assistant"))
      return {text.tokenizer.encode(text.chat_prompt(before)), before.back().at("content").as_string(),
              std::string(data::trim(last.at("content").as_string()))};
  }
  const Json *prompt = row.find("prompt"), *completion = row.find("completion");
  if (prompt != nullptr && completion != nullptr && prompt->is_string() && completion->is_string())
    return {text.tokenizer.encode(prompt->as_string(), true), prompt->as_string(),
            std::string(data::trim(completion->as_string()))};
  fail(
      "[{}] eval.exact_match needs rows of messages that end with an assistant's, or of prompt and "
      "completion",
      place);
}

}  // namespace

std::vector<Answer> answer_questions(const Session& session, int64_t count) {
  const data::Source& source = *session.eval->source;
  std::vector<Answer> answers(static_cast<size_t>(std::min(count, source.size())));
  std::vector<Question> questions;
  int64_t longest = 0;
  for (int64_t i = 0; i < static_cast<int64_t>(answers.size()); ++i) {
    questions.push_back(question_of(source.row(i), source.place(i), session.text));
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
