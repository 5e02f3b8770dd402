// The flow of recipe grpo: which prompts are asked when, and what a run that continues takes over.
#include "recipes/grpo/grpo_batches.h"

#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/random.h"
#include "collectives/at_root.h"
#include "device/transfer.h"
#include "losses/spread.h"
#include "models/adapter.h"
#include "parallel/step_deadline.h"
#include "recipes/grpo/answer_settings.h"

namespace temper::recipes {

GrpoBatches::GrpoBatches(const BatchInputs& inputs)
    : setup_(inputs.setup),
      config_(inputs.config),
      keys_(grpo_keys(inputs.config)),
      data_(inputs.data),
      adapter_(inputs.adapter),
      trained_(inputs.adapter != nullptr ? inputs.adapter->parameters()
                                         : inputs.setup.model->decoder.parameters()),
      settings_(settings_of(inputs)),
      apart_(rollouts_apart(inputs)),
      answers_(inputs.setup, inputs.config, apart_ ? apart_->decoder() : inputs.setup.model->decoder,
               apart_ ? apart_->adapter() : inputs.adapter),
      prompts_(inputs.data.train, inputs.config, keys_.sampling.max_new_tokens),
      journal_(inputs.files.folder, askers().rank(), askers().size()),
      update_(keys_.updates()) {
  if (keys_.correction.routing_replay && setup_.model->decoder.num_routers() == 0)
    fail("[grpo.correction.routing_replay] is true, but the model has no routers; leave it out");
  if (keys_.engine.batch_invariant.value_or(false) && !answers_.repeats())
    fail(
        "[grpo.engine.batch_invariant] is true, but this model has layers that compute a single token by "
        "another "
        "formula (docs/rollouts.md), or the processor has neither AVX2 nor AVX-512; leave it out");
  find_held_out();
  if (const auto folder = reference_model(config_)) other_reference_ = setup_.other_model(*folder);
  if (const auto wish = critic_settings(config_)) {
    auto model = setup_.own_model(wish->folder, true);
    auto adapter = wish->lora ? models::new_adapter(*model, *wish->lora,
                                                    static_cast<uint64_t>(config_.train.seed), "grpo.critic.")
                              : nullptr;
    critic_ = std::make_unique<Critic>(std::move(model), std::move(adapter), config_, *wish, *setup_.groups);
  }
}

// Before anything is trained: what cannot be asked ends the run here, or is left out of all evaluations.
void GrpoBatches::find_held_out() {
  if (!data_.eval) return;
  for (int64_t row = 0; row < data_.eval->size(); ++row)
    if (prompt_of(*data_.eval, row, config_, keys_.sampling.max_new_tokens)) held_out_.push_back(row);
  if (held_out_.empty()) fail("[data.eval] none of {} rows can be asked", data_.eval->size());
  if (std::ssize(held_out_) < data_.eval->size())
    log_info(fmt::format("evaluations ask {} of {} rows of data.eval; the others are left out",
                         held_out_.size(), data_.eval->size()));
}

uint64_t GrpoBatches::seed_of(int64_t group, int64_t number) const {
  const auto words = Random(static_cast<uint64_t>(config_.train.seed), RandomPurpose::kSampling,
                            static_cast<uint64_t>(rollout_))
                         .words(static_cast<uint64_t>(group) << 20 | static_cast<uint64_t>(number));
  return uint64_t{words[0]} << 32 | words[1];
}

std::string GrpoBatches::settings_of(const BatchInputs& inputs) {
  return fmt::format("{} {} {}", inputs.config.train.seed, inputs.setup.origin.dump(),
                     settings_of_answers(grpo_keys(inputs.config)).dump());
}

// Of what an answer depends on; the rollout's number stands for the weights that the run has come to.
std::string GrpoBatches::key_of(const Prompt& prompt) const {
  const std::string settings = fmt::format("{} {}", rollout_, settings_);
  Hasher hasher;
  hasher.update(settings.data(), settings.size());
  hasher.update(prompt.ids.data(), prompt.ids.size() * sizeof(int32_t));
  return hasher.digest();
}

void GrpoBatches::begin_rollout() {
  Json before = prompts_.state();
  try {
    roll();
  } catch (const Error&) {
    prompts_.restore(before);
    throw;
  }
  begun_at_ = std::move(before);
  update_ = 0;
  ++next_rollout_;
}

data::Batch GrpoBatches::next() {
  if (update_ == keys_.updates()) begin_rollout();
  data::Batch batch = batch_of(updates_[static_cast<size_t>(update_ % keys_.updates_per_rollout)].rows);
  if (critic_) {
    trained_.release_gradients();  // which would take memory beside the critic's
    critic_report_.step = critic_->learn(batch.rows);
  }
  batch.progress = prompts_.progress();
  batch.epoch = static_cast<int64_t>(batch.progress);
  ++update_;
  return batch;
}

// What updates alone need sleeps while answers are sampled.
training::RolloutTurn GrpoBatches::begin_turn() {
  if (apart_) apart_->sync();
  if (sleeps(training::UpdateState::kCommunication)) setup_.groups->disconnect(apart_ != nullptr);
  return {trained_, keys_.engine.sleep};
}

// What rollouts alone need sleeps from now on. The most memory that this one had in use.
int64_t GrpoBatches::end_turn(training::RolloutTurn& turn) {
  const int64_t bytes = setup_.phases->end_rollout(setup_.ranks);
  const bool disconnects = apart_ && sleeps(training::UpdateState::kCommunication);
  answers_.rest(disconnects);
  if (disconnects) apart_->groups().disconnect(true);
  turn.wake();
  return bytes;
}

void GrpoBatches::read_journal(int64_t rollout) {
  collectives::at_each(setup_.ranks, "answers of before", [&] {
    if (answers_.leads()) journal_.begin_at(rollout, resumes_);
  });
}

// Dynamic sampling (Yu et al., "DAPO: An Open-Source LLM Reinforcement Learning System at Scale", 2025): asks
// more prompts until enough groups have answers that differ in what they are worth.
void GrpoBatches::roll() {
  synchronize(setup_.facts.device);  // the updates before it take no time of the rollout
  const double start = seconds_now();
  rollout_ = next_rollout_;
  // Answers are taken over where they would be the same again.
  if (!journal_is_read_) {
    resumes_ = answers_.repeats();
    read_journal(rollout_);
    journal_is_read_ = true;
  }
  report_ = {};
  samples_.clear();
  groups_.clear();
  training::RolloutTurn turn = begin_turn();
  setup_.phases->begin_rollout();
  // Ranks wait for each other's answers, and for verdicts, longer than for an update.
  setup_.ranks.set_deadline(parallel::StepDeadline::kLong);
  for (int64_t asked = 0; std::ssize(groups_) < keys_.prompts_per_rollout; ++report_.rounds) {
    if (report_.rounds == keys_.filter.max_rounds && keys_.filter.dynamic_sampling)
      fail(
          "[grpo.filter.dynamic_sampling] after {} rounds of prompts only {} of {} groups have answers whose "
          "rewards differ: the task is solved, too hard, or the reward gives every answer the same. Look at "
          "rollouts.jsonl, raise grpo.filter.max_rounds, or set dynamic_sampling: false",
          report_.rounds, groups_.size(), keys_.prompts_per_rollout);
    // Not one by one towards the end: some prompts more cost less than another round.
    const int64_t missing = keys_.prompts_per_rollout - std::ssize(groups_),
                  count = std::max(missing, (keys_.prompts_per_rollout + 1) / 2);
    Round round = ask(asked, count);
    asked += count;
    keep(round);
  }
  report_.memory = end_turn(turn);
  report_.sum_over(ranks());
  if (report_.judged == 0)
    fail("[grpo.rewards] none of {:.0f} answers of rollout {} could be judged", report_.answers, rollout_);
  // Of groups that are left out nothing is known, and nothing is needed.
  const bool scored = resumes_ && std::all_of(samples_.begin(), samples_.end(),
                                              [](const SampledAnswer& sample) { return sample.scored; });
  // Log-probabilities are computed by all ranks or by none.
  scored_ = ranks().sum("ranks whose answers have no scores", int64_t{!scored}) == 0;
  make_updates();
  collectives::at_each(setup_.ranks, "answers that are stored", [&] { journal_.sync(); });
  resumes_ = false;
  setup_.phases->add_rollout_seconds(seconds_now() - start);
}

GrpoBatches::Round GrpoBatches::ask(int64_t first_group, int64_t count) {
  Round round{first_group, {}, {}, {}};
  for (int64_t i = 0; i < count; ++i) round.prompts.push_back(prompts_.next());
  std::vector<Asked> asked;
  if (answers_.leads()) take_from_journal(round, asked);
  Answers::Options options;
  options.sampling.temperature = keys_.sampling.temperature;
  options.sampling.top_k = keys_.sampling.top_k;
  options.sampling.top_p = keys_.sampling.top_p;
  options.sampling.min_p = keys_.sampling.min_p;
  options.temperature = keys_.sampling.temperature;
  options.rollout = rollout_;
  options.updates = rollout_ * keys_.updates();
  std::vector<SampledAnswer> fresh = answers_.ask(
      data_.train, asked, most_answers(count), options, [&](const SampledAnswer& sample, size_t index) {
        const Prompt& prompt = *asked[index].prompt;
        journal_.write(sample, prompt, answers_.reward_names(), key_of(prompt));
      });
  report_.add(counts_of_answers());
  std::move(fresh.begin(), fresh.end(), std::back_inserter(round.samples));
  share(round.samples, [&](const SampledAnswer& sample) -> const Prompt& {
    return round.prompts[static_cast<size_t>(sample.group - first_group)];
  });
  std::sort(round.samples.begin(), round.samples.end(), [](const SampledAnswer& a, const SampledAnswer& b) {
    return std::pair(a.group, a.number) < std::pair(b.group, b.number);
  });
  report_.add(round.samples);
  round.rewards = rewards_of_all(round);
  return round;
}

// Answers of this rank that are there already; the others are asked for.
void GrpoBatches::take_from_journal(Round& round, std::vector<Asked>& asked) {
  for (size_t i = 0; i < round.prompts.size(); ++i) {
    const int64_t group = round.first_group + static_cast<int64_t>(i);
    if (!is_asked_here(group)) continue;
    for (int64_t number = 0; number < keys_.group_size; ++number) {
      Journal::Found* const found = resumes_ ? journal_.find(group, number) : nullptr;
      if (found != nullptr && found->key == key_of(round.prompts[i])) {
        round.samples.push_back(std::move(found->sample));
      } else {
        asked.push_back({&round.prompts[i], group, number, seed_of(group, number)});
      }
    }
  }
}

std::vector<double> GrpoBatches::rewards_of_all(const Round& round) const {
  std::vector<double> own;
  for (const SampledAnswer& sample : round.samples) own.push_back(sample.reward);
  const std::vector<std::vector<double>> all = ranks().gather("rewards", std::span<const double>(own));
  std::vector<double> rewards;
  std::vector<size_t> next(all.size());
  for (size_t i = 0; i < round.prompts.size(); ++i) {
    const auto rank = static_cast<size_t>((round.first_group + static_cast<int64_t>(i)) % ranks().size());
    for (int64_t number = 0; number < keys_.group_size; ++number)
      rewards.push_back(all[rank].at(next[rank]++));
  }
  return rewards;
}

// Groups to learn from. Without dynamic sampling all are: those without spread count in what the loss is
// divided by.
void GrpoBatches::keep(Round& round) {
  const auto size = static_cast<size_t>(keys_.group_size);
  for (size_t i = 0; i < round.prompts.size(); ++i) {
    const bool spread = losses::spread_of(std::span<const double>(round.rewards).subspan(i * size, size)).any;
    report_.groups += 1;
    report_.groups_without_spread += !spread;
    const bool wanted = std::ssize(groups_) < keys_.prompts_per_rollout;
    if (wanted && (spread || !keys_.filter.dynamic_sampling))
      groups_.push_back(round.first_group + static_cast<int64_t>(i));
  }
  for (SampledAnswer& sample : round.samples)
    if (std::find(groups_.begin(), groups_.end(), sample.group) != groups_.end())
      samples_.push_back(std::move(sample));
}

Json GrpoBatches::state() const {
  if (update_ == keys_.updates())
    return Json::Object{{"rollout", next_rollout_}, {"update", 0}, {"prompts", prompts_.state()}};
  return Json::Object{{"rollout", rollout_}, {"update", update_}, {"prompts", begun_at_}};
}

void GrpoBatches::restore(const Json& state, bool) {
  next_rollout_ = state.at("rollout").as_int();
  prompts_.restore(state.at("prompts"));
  update_ = keys_.updates();
  journal_is_read_ = false;
  const int64_t update = state.at("update").as_int();
  if (update == 0) return;
  // Weights have moved on since these answers were sampled.
  resumes_ = true;
  read_journal(next_rollout_);
  journal_is_read_ = true;
  begin_rollout();
  if (!scored_)
    fail(
        "[{}] rollout {} is not whole in rollouts.jsonl, but {} of its {} updates are done; restore the "
        "file, or remove the newest checkpoints down to the end of a rollout",
        config_.output, rollout_, update, keys_.updates());
  update_ = update;
}

Json GrpoBatches::counts() const {
  Json counts = Json::Object{{"prompts", prompts_.asked()}, {"left_out", prompts_.left_out()}};
  if (prompts_.lossy() > 0) counts.set("lossy", prompts_.lossy());
  return counts;
}

std::string GrpoBatches::describe_counts() const {
  const auto also = [](int64_t count, std::string_view what) {
    return count > 0 ? fmt::format(", {} {}", count, what) : std::string();
  };
  return fmt::format("{} prompts sampled{}{}", prompts_.asked(), also(prompts_.left_out(), "rows left out"),
                     also(prompts_.lossy(), "of rows with a warning about their text"));
}

void GrpoBatches::add_metrics(Json::Object& values, reports::TensorBoardWriter::Scalars& scalars) const {
  const int64_t bytes = setup_.phases->update_bytes();
  values.emplace_back("update_peak_memory_bytes", bytes);
  scalars.emplace_back("train/update_peak_memory_bytes", static_cast<double>(bytes));
  if (critic_) critic_report_.write(values, scalars);
  if (update_ != 1) return;  // once for each rollout
  report_.write(answers_.reward_names(), "", "train/", values, scalars);
}

std::optional<BatchSource::Judged> GrpoBatches::evaluate() {
  const auto count = std::ssize(held_out_), step = int64_t{askers().size()};
  std::vector<Prompt> prompts;
  for (int64_t i = askers().rank(); i < count; i += step)
    prompts.push_back(
        prompt_of(*data_.eval, held_out_[static_cast<size_t>(i)], config_, keys_.sampling.max_new_tokens)
            .value());
  std::vector<Asked> asked;
  if (answers_.leads())
    for (size_t i = 0; i < prompts.size(); ++i)
      asked.push_back({&prompts[i], askers().rank() + static_cast<int64_t>(i) * step, 0, 0});
  RolloutReport report;
  training::RolloutTurn turn = begin_turn();
  setup_.phases->begin_rollout();
  std::vector<SampledAnswer> samples =
      answers_.ask(*data_.eval, asked, (count + step - 1) / step, {}, [](const SampledAnswer&, size_t) {});
  report.memory = end_turn(turn);
  share(samples, [&](const SampledAnswer& sample) -> const Prompt& {
    return prompts[static_cast<size_t>((sample.group - askers().rank()) / step)];
  });
  report.add(samples);
  report.add(counts_of_answers());
  report.sum_over(ranks());
  Judged judged{report.mean_reward(),
                fmt::format("reward {:.4f} of {:.0f} held-out prompts", report.mean_reward(), report.answers),
                {},
                {}};
  report.write(answers_.reward_names(), "eval_", "eval/", judged.values, judged.scalars);
  return judged;
}

}  // namespace temper::recipes
