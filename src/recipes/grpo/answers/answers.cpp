#include "recipes/grpo/answers/answers.h"

#include <algorithm>
#include <map>

#include "base/clock.h"
#include "base/error.h"
#include "base/signals/stop_signals.h"
#include "collectives/at_root.h"
#include "device/transfer.h"
#include "recipes/grpo/grpo_keys.h"
#include "rollout/batch_invariant.h"

namespace temper::recipes {
namespace {

constexpr double kSecondsOfWait = 0.1;  // for rewards, before signals are looked for

}  // namespace

struct Answers::Job {
  const data::Mixture& rows;
  const Options& options;
  const std::function<void(const SampledAnswer&, size_t index)>& done;
  rollout::EngineOfRanks& engine;
  std::vector<Conversation> talks = {};
  uint64_t first_version = 0;  // of the weights that sample, by their own count, as the job begins
  std::map<int64_t, size_t> running = {};  // by the engine's number
  size_t left = 0;

  const data::RowEncoder& encoder(const Conversation& talk) const {
    return *rows.members()[rows.member_of(talk.asked().prompt->row)].encoder;
  }
};

Answers::Answers(const RunSetup& setup, const RunConfig& config, const layers::Decoder& model,
                 const layers::Adapter* adapter)
    : setup_(setup),
      config_(config),
      model_(model),
      adapter_(adapter),
      rewards_(grpo_keys(config).rewards, "grpo.rewards"),
      engine_(setup, config, model, adapter) {}

bool Answers::repeats() const { return rollout::is_batch_invariant(model_) && model_.decodes_as_prompts(); }

std::vector<SampledAnswer> Answers::ask(const data::Mixture& rows, const std::vector<Asked>& asked,
                                        int64_t most_answers, const Options& options,
                                        const std::function<void(const SampledAnswer&, size_t index)>& done) {
  counts_ = {};
  if (asked.empty() && !model_.ranks().decode_together()) {
    fail_together({});
    return {};
  }
  std::unique_ptr<rollout::EngineOfRanks> engine =
      engine_.take(most_answers, options.sampling, options.temperature);
  const rollout::Engine::Counts before = engine->counts();
  Job job{rows, options, done, *engine};
  job.left = asked.size();
  job.first_version = (adapter_ != nullptr ? adapter_->parameters() : model_.parameters()).version();
  for (size_t i = 0; i < asked.size(); ++i) {
    job.talks.emplace_back(asked[i], options.rollout);
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
  engine_.put_back(std::move(engine));
  std::vector<SampledAnswer> samples;
  for (Conversation& talk : job.talks) samples.push_back(talk.take_sample());
  return samples;
}

// What one rank alone has met with ends the run on all of them, which then save what was trained before.
void Answers::fail_together(const std::optional<Error>& failure) const {
  collectives::at_each(setup_.ranks, "answers that cannot be had", [&] {
    if (failure) throw Error(*failure);
  });
}

// Asks for the next turn.
void Answers::send(Job& job, size_t index) const {
  const Conversation& talk = job.talks[index];
  std::vector<int32_t> prompt = talk.ids();
  const int64_t most =
      std::min(grpo_keys(config_).sampling.max_new_tokens, config_.data.max_length - std::ssize(prompt));
  job.running[job.engine.add(std::move(prompt), most, talk.asked().seed, talk.is_chat())] = index;
}

void Answers::take_answer(Job& job, const rollout::Completion& answer) {
  const size_t index = job.running.extract(answer.id).mapped();
  Conversation& talk = job.talks[index];
  if (answer.finish == rollout::Finish::kFailed) fail("[{}] {}", talk.place(), answer.error);
  // The weights' own count begins again with each start of the program.
  std::vector<uint64_t> versions = adapter_ != nullptr ? answer.adapter_versions : answer.versions;
  for (uint64_t& version : versions)
    version = static_cast<uint64_t>(job.options.updates) + version - job.first_version;
  talk.add_turn(answer, versions);
  rewards_.submit(static_cast<int64_t>(index), talk.to_judge());
}

void Answers::take_verdict(Job& job, size_t index, rewards::RewardSum::Judged judged) {
  Conversation& talk = job.talks[index];
  const Json said = talk.add_verdict(std::move(judged), grpo_keys(config_).filter.on_reward_error);
  if (!said.is_null() && talk.extend(said, job.encoder(talk), setup_.text.tokenizer, config_.data.max_length))
    return send(job, index);
  job.done(talk.sample(), index);
  --job.left;
}

}  // namespace temper::recipes
