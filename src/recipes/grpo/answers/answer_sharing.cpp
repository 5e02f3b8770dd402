#include "recipes/grpo/answers/answer_sharing.h"

#include <array>

namespace temper::recipes {

bool AnswerSharing::leads() const {
  return (apart_ ? apart_->decoder() : setup_.model->decoder).ranks().is_first();
}

// Of the groups that context ranks learn from together, each asks some.
int64_t AnswerSharing::first_asked_here() const {
  if (apart_) return askers().rank();
  return learners().rank() + learners().size() * setup_.model->decoder.ranks().context_place();
}

int64_t AnswerSharing::most_asked_here(int64_t groups) const {
  return (groups + askers().size() - 1) / askers().size();
}

// Tensor ranks that follow learn from the answers of the first of them, context ranks from those of each
// other. With `apart` all ranks receive all answers, and each takes those that it learns from.
void AnswerSharing::share(std::vector<SampledAnswer>& samples, const std::vector<std::string>& reward_names,
                          const std::function<const Prompt&(const SampledAnswer&)>& prompt_of) const {
  const layers::ModelRanks& model = setup_.model->decoder.ranks();
  if (!apart_ && model.tensor == nullptr && model.context == nullptr) return;
  std::string text;
  if (leads()) {
    Json::Array lines;
    for (const SampledAnswer& sample : samples)
      lines.emplace_back(Json::Array{to_json(sample, prompt_of(sample), reward_names, ""),
                                     sample.scored ? scores_to_json(sample) : Json()});
    text = Json(std::move(lines)).dump();
  }
  std::vector<std::string> texts{text};
  if (apart_)
    texts = setup_.ranks.gather_objects("answers", std::move(text));
  else if (leads() && model.context != nullptr)
    texts = model.context->gather_objects("answers", std::move(text));
  if (!apart_ && model.tensor != nullptr) {
    texts.resize(static_cast<size_t>(model.context_ranks()));
    for (std::string& one : texts) one = model.tensor->broadcast_object("answers", std::move(one), 0);
  }
  if (!apart_ && leads() && model.context == nullptr) return;  // with its own
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
  collectives::Group* const context = setup_.model->decoder.ranks().context;
  if (!apart_ && context == nullptr) return own;
  std::array<int64_t, 3> sums{own.tokens, own.computed, own.found};
  if (apart_ && !leads()) sums = {};
  (apart_ ? setup_.ranks : *context).sum("counts of answers", std::span<int64_t>(sums));
  if (apart_ && learners().rank() != 0) sums = {};
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
        if (!sample.scored && is_asked_here(sample.group)) record.write_scores(scores_to_json(sample));
    });
  Json::Array own;
  const layers::ModelRanks& model = setup_.model->decoder.ranks();
  // Of the ranks that learn from the same answers one sends their scores.
  if (model.is_first() && model.context_place() == 0 && model.stages.has_first())
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
