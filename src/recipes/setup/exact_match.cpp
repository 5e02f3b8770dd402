#include "recipes/setup/exact_match.h"

#include <algorithm>

#include "base/error.h"
#include "base/json/json.h"
#include "collectives/at_root.h"
#include "collectives/local/local.h"
#include "rollout/engine_of_ranks.h"
#include "rollout/requests/request_limits.h"

namespace temper::recipes {
namespace {

// How many are answered at once, and with how many tokens together, of which the longest question may need
// more: keys and values take memory in addition to what training holds. And tokens of prompts in a pass.
constexpr int64_t kAtOnce = 16, kTokensAtOnce = 8192, kPromptTokens = 2048;

// Of the first rows that can be asked, as many as the configuration says; the others are counted with the
// rows of the evaluation. An Error names a row that the model cannot be asked.
std::vector<data::Question> questions_of(const data::Mixture& rows, const RunConfig& config,
                                         const layers::DecoderConfig& model) {
  const int64_t context = model.max_positions;
  const rollout::RequestLimits limits{model.vocab_size, context, context, true};
  std::vector<data::Question> questions;
  for (int64_t i = 0; i < rows.size() && std::ssize(questions) < config.eval.exact_match; ++i) {
    if (config.data.on_bad_row == data::OnBadRow::kSkip && !rows.read(i).error.empty()) continue;
    try {
      questions.push_back(rows.members()[rows.member_of(i)].encoder->question_of(rows.json(i)));
      limits.check({.prompt = questions.back().prompt, .max_new_tokens = config.eval.max_new_tokens});
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

rollout::EngineOptions options_for(const std::vector<data::Question>& questions, int64_t max_new_tokens,
                                   int64_t context) {
  int64_t longest = 0;
  for (const data::Question& question : questions) longest = std::max(longest, std::ssize(question.prompt));
  rollout::EngineOptions options;
  options.max_running = std::min<int64_t>(std::ssize(questions), kAtOnce);
  options.chunk_tokens = kPromptTokens;
  const int64_t each =
      (std::min(context, longest + max_new_tokens) / options.page_tokens + 1) * options.page_tokens;
  options.cache_tokens = std::max(each, std::min(options.max_running * each, kTokensAtOnce));
  return options;
}

struct Found {
  std::vector<std::string> answers;  // to all questions; empty where another rank leads
  std::string failure;               // of one of them; empty: there is none
};

Found answers_of(rollout::EngineOfRanks& engine, const std::vector<data::Question>& questions,
                 int64_t max_new_tokens) {
  Found found{std::vector<std::string>(questions.size()), {}};
  int64_t left = 0;
  if (engine.leads())
    for (; left < std::ssize(questions); ++left)
      engine.add(questions[static_cast<size_t>(left)].prompt, max_new_tokens, 0, true);
  while (engine.round(left == 0) != rollout::EngineOfRanks::Round::kDone)
    for (rollout::Completion& answer : engine.take_finished()) {
      if (answer.finish == rollout::Finish::kFailed) found.failure = answer.error;
      found.answers[static_cast<size_t>(answer.id)] = std::move(answer.text);
      --left;
    }
  return found;
}

}  // namespace

std::vector<Answer> answer_questions(const RunSetup& setup, const Answerer& model, const RunConfig& config,
                                     const data::Mixture& rows, std::optional<int32_t> ending) {
  const layers::Decoder& decoder = model.decoder;
  collectives::Group& ranks = decoder.ranks().decode_together() ? setup.ranks : collectives::alone();
  const std::vector<data::Question> questions =
      shared(ranks, [&] { return questions_of(rows, config, decoder.config()); });
  rollout::Request like;
  like.adapter = model.adapter;
  like.log_prob_temperature = 0;
  like.stop_ids = setup.text.generation.stop_ids;
  if (ending) like.stop_ids.push_back(*ending);
  const int64_t most = config.eval.max_new_tokens;
  rollout::EngineOfRanks engine(decoder, options_for(questions, most, decoder.config().max_positions),
                                &setup.text.tokenizer);
  engine.set_like(std::move(like));
  const Found found = answers_of(engine, questions, most);
  collectives::at_each(ranks, "answers to questions", [&] {
    if (!found.failure.empty()) fail("{}", found.failure);
  });
  // The first rank's, so that all go on with the same.
  const std::string text = collectives::made_at_root(
      ranks, "answers", [&] { return Json(Json::Array(found.answers.begin(), found.answers.end())).dump(); });
  const Json parsed = Json::parse(text, "answers");
  std::vector<Answer> answers;
  for (size_t i = 0; i < questions.size(); ++i)
    answers.push_back({questions[i].text, std::string(data::trim(questions[i].answer)),
                       std::string(data::trim(parsed.as_array()[i].as_string()))});
  return answers;
}

double accuracy(const std::vector<Answer>& answers) {
  if (answers.empty()) return 0;
  const auto correct =
      std::count_if(answers.begin(), answers.end(), [](const Answer& a) { return a.correct(); });
  return static_cast<double>(correct) / static_cast<double>(answers.size());
}

}  // namespace temper::recipes
