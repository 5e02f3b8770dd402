// The part of recipe grpo that brings answers to the ranks that learn from them, where others asked for them.
#include <array>

#include "recipes/grpo/grpo_batches.h"

namespace temper::recipes {

std::unique_ptr<RolloutModel> GrpoBatches::rollouts_apart(const BatchInputs& inputs) {
  const GrpoKeys& keys = grpo_keys(inputs.config);
  const std::optional<RolloutDegrees> degrees = degrees_of(keys);
  if (!degrees) return nullptr;
  return std::make_unique<RolloutModel>(inputs.setup, *degrees, inputs.adapter, keys.engine.check_sync);
}

// Of so many prompts, the answers of one rank, at most.
int64_t GrpoBatches::most_answers(int64_t prompts) const {
  return (prompts + askers().size() - 1) / askers().size() * keys_.group_size;
}

// Tensor ranks that follow learn from what the first of them was answered. Where rollouts divide the model
// otherwise, all ranks hear of all answers, and each takes those that it learns from.
void GrpoBatches::share(std::vector<SampledAnswer>& samples,
                        const std::function<const Prompt&(const SampledAnswer&)>& prompt_of) const {
  collectives::Group* const tensor = setup_.model->decoder.ranks().tensor;
  if (!apart_ && tensor == nullptr) return;
  std::string text;
  if (answers_.leads()) {
    Json::Array lines;
    for (const SampledAnswer& sample : samples)
      lines.emplace_back(Json::Array{to_json(sample, prompt_of(sample), answers_.reward_names(), ""),
                                     sample.scored ? scores_to_json(sample) : Json()});
    text = Json(std::move(lines)).dump();
  }
  if (!apart_ && answers_.leads()) {
    tensor->broadcast_object("answers", std::move(text), 0);
    return;
  }
  const std::vector<std::string> texts =
      apart_ ? setup_.ranks.gather_objects("answers", std::move(text))
             : std::vector<std::string>{tensor->broadcast_object("answers", "", 0)};
  samples.clear();
  for (const std::string& one : texts) {
    if (one.empty()) continue;  // of a rank that follows
    const Json parsed = Json::parse(one, "answers");
    for (const Json& line : parsed.as_array()) {
      SampledAnswer sample = sample_from(line.as_array().at(0));
      if (!is_own(sample.group)) continue;
      const Json& scores = line.as_array().at(1);
      if (!scores.is_null()) recipes::take_scores(scores, sample);
      samples.push_back(std::move(sample));
    }
  }
}

// As the ranks that learn add them up: of those that ask, with others beside them, the first tells of all.
Answers::Counts GrpoBatches::counts_of_answers() const {
  Answers::Counts counts = answers_.counts();
  if (!apart_) return counts;
  std::array<int64_t, 3> sums{counts.tokens, counts.computed, counts.found};
  if (!answers_.leads()) sums = {};
  setup_.ranks.sum("counts of answers", std::span<int64_t>(sums));
  if (ranks().rank() != 0) sums = {};
  counts.tokens = sums[0];
  counts.computed = sums[1];
  counts.found = sums[2];
  return counts;
}

// In the journal of the rank that asked, behind the answer; once, where a run that was stopped had begun to.
void GrpoBatches::keep_scores() {
  collectives::KeptErrors& kept = *setup_.kept_errors;
  if (!apart_)
    return kept.attempt([&] {
      if (!answers_.leads()) return;
      for (const SampledAnswer& sample : samples_)
        if (!sample.scored) journal_.write_scores(scores_to_json(sample));
    });
  Json::Array own;
  if (setup_.model->decoder.ranks().is_first())
    for (const SampledAnswer& sample : samples_)
      if (!sample.scored) own.push_back(scores_to_json(sample));
  for (const std::string& text : setup_.ranks.gather_objects("scores", Json(std::move(own)).dump())) {
    const Json parsed = Json::parse(text, "scores");
    for (const Json& scores : parsed.as_array())
      kept.attempt([&] {
        if (answers_.leads() && is_asked_here(scores.at("group").as_int())) journal_.write_scores(scores);
      });
  }
}

}  // namespace temper::recipes
