#include "recipes/grpo/answers.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/stop_signals.h"
#include "collectives/at_root.h"
#include "data/chat/losses.h"
#include "device/memory_policy.h"
#include "device/transfer.h"
#include "recipes/grpo/grpo_keys.h"
#include "rollout/batch_invariant.h"
#include "rollout/requests/finish.h"

namespace temper::recipes {
namespace {

constexpr double kSecondsOfWait = 0.1;  // for rewards, before signals are looked for

// What an environment's messages must be for a chat template.
const Json::Array& messages_of(const Json& next, const std::string& place) {
  if (!next.is_array() || next.as_array().empty())
    fail("[{}] the environment's messages are {}, expected a list of at least one", place, next.kind_name());
  for (const Json& message : next.as_array())
    if (!message.is_object() || message.find("role") == nullptr)
      fail("[{}] a message of the environment has no role", place);
  return next.as_array();
}

}  // namespace

// An answer on its way.
struct Answers::Talk {
  const Asked* asked;
  SampledAnswer sample;
  Json::Array messages;  // so far, of a conversation
  std::string text;      // that the model has seen, of a conversation
  bool is_chat = false;

  void begin(const Asked& wanted, int64_t rollout) {
    asked = &wanted;
    sample = {rollout, wanted.group, wanted.number, wanted.prompt->row};
    sample.passages.push_back({.prompt = wanted.prompt->ids});
    if (const Json& said = wanted.prompt->messages; said.is_array()) {
      is_chat = true;
      messages = said.as_array();
    }
  }
  std::string place() const { return fmt::format("{}, sample {}", asked->prompt->place, asked->number); }
  Passage& passage() { return sample.passages.back(); }
};

struct Answers::Job {
  const data::Mixture& rows;
  const Options& options;
  const std::function<void(const SampledAnswer&, size_t index)>& done;
  rollout::EngineOfRanks& engine;
  std::vector<Talk> talks;
  uint64_t first_version = 0;  // of the weights that sample, by their own count, as the job begins
  std::map<int64_t, size_t> running = {};  // by the engine's number
  size_t left = 0;

  const data::RowEncoder& encoder(const Talk& talk) const {
    return *rows.members()[rows.member_of(talk.asked->prompt->row)].encoder;
  }
};

Answers::Answers(const RunSetup& setup, const RunConfig& config, const layers::Decoder& model,
                 const layers::Adapter* adapter)
    : setup_(setup),
      config_(config),
      model_(model),
      adapter_(adapter),
      rewards_(grpo_keys(config).rewards, "grpo.rewards") {}

bool Answers::repeats() const { return rollout::is_batch_invariant(model_) && model_.decodes_as_prompts(); }

rollout::EngineOptions engine_options(const RunConfig& config, int64_t answers) {
  const GrpoKeys& keys = grpo_keys(config);
  rollout::EngineOptions options;
  options.max_running = std::max<int64_t>(1, std::min<int64_t>(keys.engine.batch, answers));
  const int64_t pages = config.data.max_length / options.page_tokens + 1;
  options.cache_tokens = keys.engine.cache_tokens.value_or(options.max_running * pages * options.page_tokens);
  return options;
}

// With the cache that the plan of memory has found room for.
rollout::EngineOptions Answers::planned_options(int64_t answers) const {
  rollout::EngineOptions options = engine_options(config_, answers);
  if (setup_.cache_tokens > 0) options.cache_tokens = std::min(options.cache_tokens, setup_.cache_tokens);
  return options;
}

std::unique_ptr<rollout::EngineOfRanks> Answers::take_engine(int64_t answers, const Options& options) {
  std::unique_ptr<rollout::EngineOfRanks> engine = std::move(engine_);
  if (engine != nullptr) engine->wake();
  // One for all: where some ask for more at once, as they all turn out to do, it is made again.
  const rollout::EngineOptions planned = planned_options(answers);
  if (engine == nullptr || planned.max_running > most_running_) {
    engine = nullptr;  // before there are two
    most_running_ = planned.max_running;
    engine = std::make_unique<rollout::EngineOfRanks>(model_, planned, &setup_.text.tokenizer);
  }
  engine->set_like(request_like(options));
  return engine;
}

void Answers::rest(bool gives_back) {
  if (engine_ == nullptr) return;
  const Device device = model_.device();
  if (gives_back || setup_.config.adapters.size() > 1 ||
      device::memory_policy(device).policy == device::MemoryPolicy::kSeparate)
    engine_ = nullptr;
  else
    engine_->sleep();
}

rollout::Request Answers::request_like(const Options& options) const {
  const GrpoKeys& keys = grpo_keys(config_);
  rollout::Request request;
  request.sampling = options.sampling;
  request.stop_ids = setup_.text.generation.stop_ids;
  request.stop_strings = keys.sampling.stop;
  request.adapter = adapter_;
  request.log_prob_temperature = options.temperature;
  request.record_experts = keys.correction.routing_replay;
  return request;
}

std::vector<SampledAnswer> Answers::ask(const data::Mixture& rows, const std::vector<Asked>& asked,
                                        int64_t most_answers, const Options& options,
                                        const std::function<void(const SampledAnswer&, size_t index)>& done) {
  counts_ = {};
  if (asked.empty() && !model_.ranks().meet()) {
    fail_together({});
    return {};
  }
  std::unique_ptr<rollout::EngineOfRanks> engine = take_engine(most_answers, options);
  const rollout::Engine::Counts before = engine->counts();
  Job job{rows, options, done, *engine, std::vector<Talk>(asked.size())};
  job.left = asked.size();
  job.first_version = (adapter_ != nullptr ? adapter_->parameters() : model_.parameters()).version();
  for (size_t i = 0; i < asked.size(); ++i) {
    job.talks[i].begin(asked[i], options.rollout);
    send(job, i);
  }
  using Round = rollout::EngineOfRanks::Round;
  std::optional<Error> failure;
  for (;;) {
    const double start = seconds_now();
    const Round round = job.engine.round(job.left == 0, stop_is_requested());
    if (round == Round::kDone) break;
    if (round == Round::kStopped) {
      synchronize(setup_.facts.device);  // a pass may be under way
      if (!failure)
        failure.emplace("stopped by a signal while answers were sampled", ErrorKind::kInterrupted);
      break;
    }
    const std::vector<rollout::Completion> finished = job.engine.take_finished();
    const double generated = seconds_now();
    counts_.generating += generated - start;
    if (failure) continue;  // until the others, too, know that nothing more is asked
    const bool waits = round == Round::kIdle && job.left > 0;
    try {
      for (const rollout::Completion& answer : finished) take_answer(job, answer);
      for (auto& [id, judged] : rewards_.take(waits ? kSecondsOfWait : 0))
        take_verdict(job, static_cast<size_t>(id), std::move(judged));
    } catch (const Error& error) {
      if (setup_.ranks.is_alone()) throw;
      failure.emplace(error);
      job.left = 0;
    }
    if (waits) counts_.judging += seconds_now() - generated;
  }
  fail_together(failure);
  const rollout::Engine::Counts& counts = engine->counts();
  counts_.tokens = counts.sampled - before.sampled;
  counts_.computed = counts.computed - before.computed;
  counts_.found = counts.found - before.found;
  engine_ = std::move(engine);
  std::vector<SampledAnswer> samples;
  for (Talk& talk : job.talks) samples.push_back(std::move(talk.sample));
  return samples;
}

// What one rank alone has met with ends the run on all of them, which then save what was trained before.
void Answers::fail_together(const std::optional<Error>& failure) const {
  collectives::at_each(setup_.ranks, "answers that cannot be had", [&] {
    if (failure) throw Error(*failure);
  });
}

// Asks for the next turn behind what the passage has.
void Answers::send(Job& job, size_t index) const {
  const GrpoKeys& keys = grpo_keys(config_);
  Talk& talk = job.talks[index];
  const Passage& passage = talk.passage();
  std::vector<int32_t> prompt = passage.prompt;
  prompt.insert(prompt.end(), passage.ids.begin(), passage.ids.end());
  const int64_t most = std::min(keys.sampling.max_new_tokens, config_.data.max_length - std::ssize(prompt));
  job.running[job.engine.add(std::move(prompt), most, talk.asked->seed, talk.is_chat)] = index;
}

void Answers::take_answer(Job& job, const rollout::Completion& answer) {
  const size_t index = job.running.extract(answer.id).mapped();
  Talk& talk = job.talks[index];
  if (answer.finish == rollout::Finish::kFailed) fail("[{}] {}", talk.place(), answer.error);
  Passage& passage = talk.passage();
  passage.ids.insert(passage.ids.end(), answer.ids.begin(), answer.ids.end());
  passage.columns.append(answer.columns);
  // The weights' own count begins again with each start of the program.
  for (const uint64_t version : adapter_ != nullptr ? answer.adapter_versions : answer.versions)
    passage.versions.push_back(static_cast<uint64_t>(job.options.updates) + version - job.first_version);
  passage.sampled.resize(passage.ids.size(), 1);
  passage.experts = answer.experts;  // of all tokens: earlier turns were its prompt
  talk.sample.text = answer.text;
  talk.sample.finish = rollout::name_of(answer.finish);
  rewards::Sample judged{talk.place(), &talk.asked->prompt->json, talk.sample.text,
                         talk.sample.count_sampled(), talk.sample.is_truncated()};
  if (talk.is_chat) {
    talk.messages.emplace_back(Json::Object{{"role", "assistant"}, {"content", talk.sample.text}});
    judged.messages = Json(talk.messages);
  }
  rewards_.submit(static_cast<int64_t>(index), judged);
}

void Answers::take_verdict(Job& job, size_t index, rewards::RewardSum::Judged judged) {
  Talk& talk = job.talks[index];
  SampledAnswer& sample = talk.sample;
  // What an environment gives turn by turn adds up.
  const double reward = (std::isnan(sample.reward) ? 0 : sample.reward) + judged.verdict.reward;
  if (judged.verdict.error.empty()) judged.verdict.error = rewards::problem_of_reward(reward);
  if (!judged.verdict.error.empty()) {
    const std::string error = fmt::format("[{}] {}", talk.place(), judged.verdict.error);
    if (grpo_keys(config_).filter.on_reward_error == FilterKeys::OnRewardError::kStop)
      fail("{}; grpo.filter.on_reward_error: drop leaves such answers out", error);
    log_warning(error + "; the answer is left out");
    sample.error = judged.verdict.error;
    sample.reward = std::numeric_limits<double>::quiet_NaN();  // earlier turns are no verdict
    sample.parts.clear();
  } else {
    sample.reward = reward;
    sample.parts.resize(judged.parts.size());
    for (size_t i = 0; i < judged.parts.size(); ++i) sample.parts[i] += judged.parts[i];
    if (!judged.verdict.next.is_null() && !sample.is_truncated())
      return extend(job, index, messages_of(judged.verdict.next, talk.place()));
  }
  job.done(sample, index);
  --job.left;
}

// The tokens that were sampled stay; what the environment says, and what the template writes around it, goes
// behind them. Where the template writes earlier turns otherwise now, another passage begins.
void Answers::extend(Job& job, size_t index, const Json::Array& said) const {
  Talk& talk = job.talks[index];
  if (!talk.is_chat)
    fail("[{}] the environment answers with messages, but the row is no conversation", talk.place());
  const data::RowEncoder& encoder = job.encoder(talk);
  const Json& row = talk.asked->prompt->json;
  if (talk.text.empty()) {
    const Json::Array asked(talk.messages.begin(), talk.messages.end() - 1);
    talk.text = encoder.prompt_text(asked, row).text;
  }
  talk.messages.insert(talk.messages.end(), said.begin(), said.end());
  auto [text, lost, notes] = encoder.prompt_text(talk.messages, row);
  data::warn_of_losses([&] { return talk.place(); }, lost);
  data::log_notes([&] { return talk.place(); }, notes);
  Passage& passage = talk.passage();
  // Of the last turn alone: what stood before it is in the text.
  const auto turn =
      std::find(passage.sampled.rbegin(), passage.sampled.rend(), 0).base() - passage.sampled.begin();
  const std::string seen = talk.text + setup_.text.tokenizer.decode(
                                           std::span(passage.ids).subspan(static_cast<size_t>(turn)), false);
  const bool extends = text.starts_with(seen);
  const tokenizers::Tokenizer& tokenizer = setup_.text.tokenizer;
  const std::vector<int32_t> added =
      extends ? tokenizer.encode_parts(std::string_view(text).substr(seen.size()), std::array{size_t{0}}).ids
              : tokenizer.encode_with_offsets(text).ids;
  const int64_t before = extends ? std::ssize(passage.prompt) + std::ssize(passage.ids) : 0;
  if (before + std::ssize(added) >= config_.data.max_length) {
    talk.sample.finish = "length";  // there is no room for a turn more
    job.done(talk.sample, index);
    --job.left;
    return;
  }
  ++talk.sample.turns;
  if (extends) {
    passage.ids.insert(passage.ids.end(), added.begin(), added.end());
    passage.sampled.resize(passage.ids.size(), 0);
    passage.columns.extend(std::ssize(passage.ids));
    passage.versions.resize(passage.ids.size(), 0);
  } else {
    talk.sample.passages.push_back({.prompt = added});
  }
  talk.text = std::move(text);
  send(job, index);
}

}  // namespace temper::recipes
