#include "recipes/exact_match.h"

#include <algorithm>

#include "base/error.h"
#include "base/threads.h"

namespace temper::recipes {
namespace {

// Of the first `count` rows that can be asked; the others are counted with the rows of the evaluation.
std::vector<data::Question> questions_of(const data::Mixture& rows, int64_t count,
                                         data::OnBadRow on_bad_row) {
  std::vector<data::Question> questions;
  for (int64_t i = 0; i < rows.size() && static_cast<int64_t>(questions.size()) < count; ++i) {
    if (on_bad_row == data::OnBadRow::kSkip && !rows.read(i).error.empty()) continue;
    try {
      questions.push_back(rows.members()[rows.member_of(i)].encoder->question_of(rows.json(i)));
    } catch (const Error& error) {
      fail("[{}] {}; eval.exact_match cannot ask it", rows.place(i), error.what());
    }
  }
  if (questions.empty()) fail("[eval.exact_match] no row of {} can be asked", rows.describe());
  return questions;
}

}  // namespace

std::vector<Answer> answer_questions(const RunSetup& setup, const RunConfig& config,
                                     const data::Mixture& rows, const layers::Adapter* adapter) {
  const std::vector<data::Question> questions =
      questions_of(rows, config.eval.exact_match, config.data.on_bad_row);
  std::vector<Answer> answers(questions.size());
  int64_t longest = 0;
  for (const data::Question& question : questions)
    longest = std::max(longest, static_cast<int64_t>(question.prompt.size()));
  rollout::GenerateOptions options;
  options.max_new_tokens = config.eval.max_new_tokens;
  options.adapter = adapter;
  options.stop_ids = setup.text.generation.stop_ids;
  const layers::Decoder& decoder = setup.model->decoder;
  decoder.prepare_positions(std::min(longest + options.max_new_tokens, decoder.config().max_positions));
  const auto answer = [&](rollout::Generator& generator, int64_t i) {
    const data::Question& question = questions[static_cast<size_t>(i)];
    const rollout::Generation result = generator.generate(question.prompt, options);
    const std::string found = setup.text.tokenizer.decode(result.ids, true);
    answers[static_cast<size_t>(i)] = {question.text, std::string(data::trim(question.answer)),
                                       std::string(data::trim(found))};
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
