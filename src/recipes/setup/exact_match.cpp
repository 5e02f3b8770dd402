#include "recipes/setup/exact_match.h"

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "base/threads.h"
#include "collectives/at_root.h"
#include "collectives/local/local.h"

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

// Rank 0 reads the data, as for training.
std::vector<data::Question> shared(collectives::Group& ranks,
                                   const std::function<std::vector<data::Question>()>& read) {
  if (ranks.is_alone()) return read();
  const std::string text = collectives::made_at_root(ranks, "questions", [&] {
    Json::Array all;
    for (const data::Question& question : read()) {
      Json::Array prompt;
      for (const int32_t id : question.prompt) prompt.emplace_back(int64_t{id});
      all.emplace_back(Json::Array{question.text, std::move(prompt), question.answer});
    }
    return Json(std::move(all)).dump();
  });
  std::vector<data::Question> questions;
  const Json parsed = Json::parse(text, "questions");
  for (const Json& one : parsed.as_array()) {
    const Json::Array& parts = one.as_array();
    data::Question& question = questions.emplace_back();
    question.text = parts[0].as_string();
    for (const Json& id : parts[1].as_array()) question.prompt.push_back(static_cast<int32_t>(id.as_int()));
    question.answer = parts[2].as_string();
  }
  return questions;
}

}  // namespace

std::vector<Answer> answer_questions(const RunSetup& setup, const RunConfig& config,
                                     const data::Mixture& rows, const layers::Adapter* adapter,
                                     std::optional<int32_t> ending) {
  const bool together = setup.model->decoder.ranks().meet();
  const std::vector<data::Question> questions = shared(together ? setup.ranks : collectives::alone(), [&] {
    return questions_of(rows, config.eval.exact_match, config.data.on_bad_row);
  });
  std::vector<Answer> answers(questions.size());
  int64_t longest = 0;
  for (const data::Question& question : questions)
    longest = std::max(longest, static_cast<int64_t>(question.prompt.size()));
  rollout::GenerateOptions options;
  options.max_new_tokens = config.eval.max_new_tokens;
  options.adapter = adapter;
  options.stop_ids = setup.text.generation.stop_ids;
  if (ending) options.stop_ids.push_back(*ending);
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
  // A device serves one generator at a time, as do ranks that answer together.
  if (together || decoder.device().type != DeviceType::kCpu) {
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
