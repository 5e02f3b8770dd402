#include "recipes/grpo/sampler.h"

#include <algorithm>

#include "base/clock.h"
#include "base/error.h"
#include "base/random.h"
#include "recipes/plans/mesh.h"

namespace temper::recipes {
namespace {

std::unique_ptr<RolloutModel> rollouts_apart(const BatchInputs& inputs) {
  const GrpoKeys& keys = grpo_keys(inputs.config);
  const RunSetup& setup = inputs.setup;
  const std::optional<Mesh> mesh =
      rollout_mesh(degrees_of(keys), setup.mesh, setup.architecture, setup.config);
  if (!mesh) return nullptr;
  return std::make_unique<RolloutModel>(setup, *mesh, inputs.adapter, keys.engine.check_sync);
}

}  // namespace

Sampler::Sampler(const BatchInputs& inputs)
    : setup_(inputs.setup),
      keys_(grpo_keys(inputs.config)),
      data_(inputs.data),
      seed_(static_cast<uint64_t>(inputs.config.train.seed)),
      trained_(inputs.adapter != nullptr ? inputs.adapter->parameters()
                                         : inputs.setup.model->decoder.parameters()),
      apart_(rollouts_apart(inputs)),
      sharing_(inputs.setup, apart_.get()),
      answers_(inputs.setup, inputs.config, apart_ ? apart_->decoder() : inputs.setup.model->decoder,
               apart_ ? apart_->adapter() : inputs.adapter) {
  if (keys_.correction.routing_replay && setup_.model->decoder.num_routers() == 0)
    fail("[grpo.correction.routing_replay] is true, but the model has no routers; leave it out");
  if (keys_.engine.batch_invariant.value_or(false) && !answers_.repeats())
    fail(
        "[grpo.engine.batch_invariant] is true, but this model has layers that compute a single token by "
        "another formula (docs/rollouts.md), or the processor has neither AVX2 nor AVX-512; leave it out");
}

bool Sampler::sleeps(training::UpdateState state) const {
  return std::ranges::count(keys_.engine.sleep, state) > 0;
}

Sampler::Turn Sampler::begin_turn() {
  const double start = seconds_now();
  if (apart_) apart_->sync();
  if (sleeps(training::UpdateState::kCommunication)) setup_.groups->disconnect(apart_ != nullptr);
  const auto seconds = [&] {
    synchronize(setup_.facts.device);
    return seconds_now() - start;
  };
  return {training::RolloutTurn(trained_, keys_.engine.sleep), seconds()};
}

TurnCosts Sampler::end_turn(Turn& turn) {
  const int64_t bytes = setup_.phases->end_rollout(setup_.ranks);
  const double start = seconds_now();
  const bool disconnects = apart_ && sleeps(training::UpdateState::kCommunication);
  answers_.rest(disconnects);
  if (disconnects) apart_->groups().disconnect(true);
  turn.memory.wake();
  if (disconnects) setup_.groups->connect_stages();
  synchronize(setup_.facts.device);
  return {bytes, turn.syncing + seconds_now() - start};
}

uint64_t Sampler::seed_of(int64_t rollout, int64_t group, int64_t number) const {
  const auto words = Random(seed_, RandomPurpose::kSampling, static_cast<uint64_t>(rollout))
                         .words(static_cast<uint64_t>(group) << 20 | static_cast<uint64_t>(number));
  return uint64_t{words[0]} << 32 | words[1];
}

Answers::Options Sampler::options_of(int64_t rollout) const {
  const SamplingKeys& keys = keys_.sampling;
  Answers::Options options;
  options.sampling.temperature = keys.temperature;
  options.sampling.top_k = keys.top_k;
  options.sampling.top_p = keys.top_p;
  options.sampling.min_p = keys.min_p;
  options.temperature = keys.temperature;
  options.rollout = rollout;
  options.updates = rollout * keys_.updates();
  return options;
}

void Sampler::ask(int64_t rollout, AskedGroups& groups, AnswerRecord& record, RolloutReport& report) {
  const std::vector<Asked> asked = take_from_record(rollout, groups, record);
  std::vector<SampledAnswer> fresh = answers_.ask(
      data_.train, asked, sharing_.most_asked_here(std::ssize(groups.prompts)) * keys_.group_size,
      options_of(rollout), [&](const SampledAnswer& sample, size_t index) {
        record.write(sample, *asked[index].prompt, reward_names());
      });
  report.work.add(sharing_.counts(answers_.counts()));
  std::move(fresh.begin(), fresh.end(), std::back_inserter(groups.samples));
  sharing_.share(groups.samples, reward_names(), [&](const SampledAnswer& sample) -> const Prompt& {
    return groups.prompts[static_cast<size_t>(sample.group - groups.first_group)];
  });
  std::sort(groups.samples.begin(), groups.samples.end(), [](const SampledAnswer& a, const SampledAnswer& b) {
    return std::pair(a.group, a.number) < std::pair(b.group, b.number);
  });
  report.answers.add(groups.samples);
  groups.rewards = rewards_of_all(groups);
}

// The answers that are there already become samples; the others are to be asked for.
std::vector<Asked> Sampler::take_from_record(int64_t rollout, AskedGroups& groups,
                                             AnswerRecord& record) const {
  std::vector<Asked> asked;
  if (!sharing_.leads()) return asked;
  for (size_t i = 0; i < groups.prompts.size(); ++i) {
    const int64_t group = groups.first_group + static_cast<int64_t>(i);
    if (!sharing_.is_asked_here(group)) continue;
    const Prompt& prompt = groups.prompts[i];
    for (int64_t number = 0; number < keys_.group_size; ++number)
      if (!record.take(rollout, prompt, group, number, groups.samples))
        asked.push_back({&prompt, group, number, seed_of(rollout, group, number)});
  }
  return asked;
}

std::vector<double> Sampler::rewards_of_all(const AskedGroups& groups) const {
  std::vector<double> own;
  for (const SampledAnswer& sample : groups.samples) own.push_back(sample.reward);
  collectives::Group& ranks = sharing_.learners();
  const std::vector<std::vector<double>> all = ranks.gather("rewards", std::span<const double>(own));
  std::vector<double> rewards;
  std::vector<size_t> next(all.size());
  for (size_t i = 0; i < groups.prompts.size(); ++i) {
    const auto rank = static_cast<size_t>((groups.first_group + static_cast<int64_t>(i)) % ranks.size());
    for (int64_t number = 0; number < keys_.group_size; ++number)
      rewards.push_back(all[rank].at(next[rank]++));
  }
  return rewards;
}

RolloutReport Sampler::ask_held_out(const HeldOutPrompts& held_out) {
  const int64_t first = sharing_.first_asked_here(), step = sharing_.askers().size();
  const std::vector<Prompt> prompts = held_out.every(first, step);
  std::vector<Asked> asked;
  if (sharing_.leads())
    for (size_t i = 0; i < prompts.size(); ++i)
      asked.push_back({&prompts[i], first + static_cast<int64_t>(i) * step, 0, 0});
  RolloutReport report;
  Turn turn = begin_turn();
  setup_.phases->begin_rollout();
  std::vector<SampledAnswer> samples =
      answers_.ask(held_out.rows(), asked, sharing_.most_asked_here(held_out.size()), {},
                   [](const SampledAnswer&, size_t) {});
  report.add(end_turn(turn));
  sharing_.share(samples, reward_names(), [&](const SampledAnswer& sample) -> const Prompt& {
    return prompts[static_cast<size_t>((sample.group - first) / step)];
  });
  report.answers.add(samples);
  report.work.add(sharing_.counts(answers_.counts()));
  report.sum_over(sharing_.learners());
  return report;
}

}  // namespace temper::recipes
