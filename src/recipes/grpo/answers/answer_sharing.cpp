#include "recipes/grpo/answers/answer_sharing.h"

#include <array>

namespace temper::recipes {

bool AnswerSharing::leads() const {
  return (apart_ ? apart_->decoder() : setup_.model->decoder).ranks().is_first();
}

int64_t AnswerSharing::most_asked_here(int64_t groups) const {
  return (groups + askers().size() - 1) / askers().size();
}

// Tensor ranks that follow learn from the answers of the first of them. With `apart` all ranks receive all
// answers, and each takes those that it learns from.
void AnswerSharing::share(std::vector<SampledAnswer>& samples, const std::vector<std::string>& reward_names,
                          const std::function<const Prompt&(const SampledAnswer&)>& prompt_of) const {
  collectives::Group* const tensor = setup_.model->decoder.ranks().tensor;
  if (!apart_ && tensor == nullptr) return;
  std::string text;
  if (leads()) {
    Json::Array lines;
    for (const SampledAnswer& sample : samples)
      lines.emplace_back(Json::Array{to_json(sample, prompt_of(sample), reward_names, ""),
                                     sample.scored ? scores_to_json(sample) : Json()});
    text = Json(std::move(lines)).dump();
  }
  if (!apart_ && leads()) {
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
      if (!is_learned_here(sample.group)) continue;
      const Json& scores = line.as_array().at(1);
      if (!scores.is_null()) take_scores(scores, sample);
      samples.push_back(std::move(sample));
    }
  }
}

Answers::Counts AnswerSharing::counts(Answers::Counts own) const {
  if (!apart_) return own;
  std::array<int64_t, 3> sums{own.tokens, own.computed, own.found};
  if (!leads()) sums = {};
  setup_.ranks.sum("counts of answers", std::span<int64_t>(sums));
  if (learners().rank() != 0) sums = {};
  own.tokens = sums[0];
  own.computed = sums[1];
  own.found = sums[2];
  return own;
}

void AnswerSharing::write_scores(const std::vector<SampledAnswer>& samples, AnswerRecord& record) const {
  collectives::KeptErrors& kept = *setup_.kept_errors;
  if (!apart_)
    return kept.attempt([&] {
      if (!leads()) return;
      for (const SampledAnswer& sample : samples)
        if (!sample.scored) record.write_scores(scores_to_json(sample));
    });
  Json::Array own;
  if (setup_.model->decoder.ranks().is_first())
    for (const SampledAnswer& sample : samples)
      if (!sample.scored) own.push_back(scores_to_json(sample));
  for (const std::string& text : setup_.ranks.gather_objects("scores", Json(std::move(own)).dump())) {
    const Json parsed = Json::parse(text, "scores");
    for (const Json& scores : parsed.as_array())
      kept.attempt([&] {
        if (leads() && is_asked_here(scores.at("group").as_int())) record.write_scores(scores);
      });
  }
}

}  // namespace temper::recipes
