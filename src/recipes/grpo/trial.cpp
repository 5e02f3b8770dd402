#include "recipes/grpo/trial.h"

#include <algorithm>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "recipes/grpo/answers/answer_engine.h"
#include "recipes/grpo/grpo_keys.h"
#include "rewards/reward_sum.h"

namespace temper::recipes {
namespace {

// The seconds of as many answers at once as in a rollout, of `tokens` tokens each.
double seconds_of_answers(rollout::EngineOfRanks& engine, Prompts& prompts, int64_t answers,
                          int64_t group_size, int64_t tokens) {
  std::vector<std::vector<int32_t>> asked;
  while (std::ssize(asked) < answers) {
    const Prompt prompt = prompts.next();
    for (int64_t number = 0; number < group_size && std::ssize(asked) < answers; ++number)
      asked.push_back(prompt.ids);
  }
  const double start = seconds_now();
  for (size_t i = 0; i < asked.size(); ++i) engine.add(std::move(asked[i]), tokens, i);
  int64_t left = answers;
  while (engine.round(left == 0) != rollout::EngineOfRanks::Round::kDone)
    left -= std::ssize(engine.take_finished());
  return seconds_now() - start;
}

}  // namespace

// Dynamic sampling may ask any number of prompts.
RowsRead read_prompts(const RunConfig& config, const DataSets& data, int64_t updates, double end) {
  const GrpoKeys& keys = grpo_keys(config);
  const auto goes_on = [&] { return seconds_now() < end; };
  if (data.eval)
    for (int64_t row = 0; row < data.eval->size() && goes_on(); ++row)
      prompt_of(*data.eval, row, config, keys.sampling.max_new_tokens);
  const int64_t size = data.train.size(), rollouts = (updates + keys.updates() - 1) / keys.updates();
  const int64_t wanted =
      keys.filter.dynamic_sampling ? size : std::min(size, rollouts * keys.prompts_per_rollout);
  Prompts prompts(data.train, config, keys.sampling.max_new_tokens);
  const auto read = [&] { return prompts.asked() + prompts.left_out(); };
  while (read() < wanted && goes_on()) prompts.next();
  return {std::min(read(), size), read() >= wanted};
}

std::string try_rewards(const RunConfig& config, const DataSets& data) {
  const GrpoKeys& keys = grpo_keys(config);
  constexpr const char* kAnswer = "This answer was made up to try the rewards.";
  constexpr int64_t kTokens = 10;
  const Prompt prompt = Prompts(data.train, config, keys.sampling.max_new_tokens).next();
  rewards::RewardSum rewards(keys.rewards, "grpo.rewards");
  rewards::Sample sample{prompt.place + ", a made-up answer", &prompt.json, kAnswer, kTokens};
  if (prompt.messages.is_array()) {
    sample.messages = prompt.messages;
    Json::Array said = prompt.messages.as_array();
    said.emplace_back(Json::Object{{"role", "assistant"}, {"content", kAnswer}});
    sample.messages = Json(std::move(said));
  }
  rewards.submit(0, sample);
  std::vector<std::pair<int64_t, rewards::RewardSum::Judged>> found;
  while (found.empty()) found = rewards.take(rewards::kForEver);
  const rewards::Verdict& verdict = found.front().second.verdict;
  if (verdict.error.empty()) return fmt::format("a made-up answer is worth {:.4g}", verdict.reward);
  const std::string error = fmt::format("[{}] {}", sample.place, verdict.error);
  if (keys.filter.on_reward_error == FilterKeys::OnRewardError::kStop)
    fail("{}; grpo.filter.on_reward_error: drop leaves such answers out", error);
  log_warning(error);
  return "a made-up answer could not be judged (grpo.filter.on_reward_error: drop)";
}

RolloutTime time_of_rollouts(const BatchInputs& inputs) {
  constexpr int64_t kFew = 4, kMore = 20;  // tokens: prompts, and what each token adds
  constexpr double kLong = 30;             // seconds
  const GrpoKeys& keys = grpo_keys(inputs.config);
  const layers::Decoder& model = inputs.setup.model->decoder;
  const int64_t answers = keys.group_size * keys.prompts_per_rollout, most = keys.sampling.max_new_tokens;
  const rollout::EngineOptions options = engine_options(inputs.setup, inputs.config, answers);
  layers::ParameterStore& trained =
      inputs.adapter != nullptr ? inputs.adapter->parameters() : inputs.setup.model->decoder.parameters();
  training::RolloutTurn turn(trained, keys.engine.sleep);
  double prompts_seconds = 0, token_seconds = 0;
  {
    rollout::EngineOfRanks engine(model, options, &inputs.setup.text.tokenizer);
    rollout::Request like;
    like.sampling.temperature = keys.sampling.temperature;
    like.adapter = inputs.adapter;
    like.log_prob_temperature = keys.sampling.temperature;
    engine.set_like(like);
    Prompts prompts(inputs.data.train, inputs.config, most);
    const auto time = [&](int64_t tokens) {
      return seconds_of_answers(engine, prompts, options.max_running, keys.group_size, tokens);
    };
    const int64_t few = std::min(kFew, most), more = std::min(kMore, most);
    double short_seconds = time(few);
    if (short_seconds < kLong) short_seconds = time(few);  // kernels are prepared the first time
    token_seconds = short_seconds / static_cast<double>(few);
    if (short_seconds < kLong && more > few) {
      const double added = std::max(0.0, time(more) - short_seconds);
      token_seconds = std::min(token_seconds, added / static_cast<double>(more - few));
    }
    prompts_seconds = short_seconds - token_seconds * static_cast<double>(few);
  }
  turn.wake();
  const double times = static_cast<double>(answers) / static_cast<double>(options.max_running);
  return {times * (prompts_seconds + token_seconds * static_cast<double>(most)), keys.updates(),
          fmt::format("with answers of {} tokens (grpo.sampling.max_new_tokens)", most)};
}

}  // namespace temper::recipes
