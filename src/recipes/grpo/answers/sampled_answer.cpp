#include "recipes/grpo/answers/sampled_answer.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace temper::recipes {
namespace {

template <class T>
Json list_of(const std::vector<T>& values) {
  Json::Array list;
  for (const T value : values)
    if constexpr (std::is_floating_point_v<T>)
      list.emplace_back(double{value});  // nothing is rounded, there and back
    else
      list.emplace_back(static_cast<int64_t>(value));
  return list;
}

template <class T>
std::vector<T> values_of(const Json& list) {
  std::vector<T> values;
  for (const Json& value : list.as_array())
    if constexpr (std::is_floating_point_v<T>)
      values.push_back(static_cast<T>(value.as_double()));
    else
      values.push_back(static_cast<T>(value.as_int()));
  return values;
}

}  // namespace

int64_t Passage::count_sampled() const { return std::count(sampled.begin(), sampled.end(), 1); }

int64_t SampledAnswer::count_sampled() const {
  int64_t count = 0;
  for (const Passage& passage : passages) count += passage.count_sampled();
  return count;
}

Json to_json(const SampledAnswer& sample, const Prompt& prompt, const std::vector<std::string>& reward_names,
             const std::string& key) {
  Json::Object parts;
  for (size_t i = 0; i < sample.parts.size(); ++i) parts.emplace_back(reward_names.at(i), sample.parts[i]);
  Json::Array passages;
  for (const Passage& passage : sample.passages) {
    Json& written =
        passages.emplace_back(Json::Object{{"prompt", list_of(passage.prompt)},
                                           {"ids", list_of(passage.ids)},
                                           {"sampled", list_of(passage.sampled)},
                                           {"log_probs", list_of(passage.columns.rollout_log_probs)},
                                           {"versions", list_of(passage.versions)}});
    const std::vector<float>& kept = passage.columns.kept;
    if (std::any_of(kept.begin(), kept.end(), [](float each) { return each != 0; }))
      written.set("kept", list_of(kept));
    if (!passage.experts.empty()) written.set("experts", list_of(passage.experts));
  }
  Json line = Json::Object{{"rollout", sample.rollout},
                           {"group", sample.group},
                           {"sample", sample.number},
                           {"row", sample.row},
                           {"place", prompt.place},
                           {"question", prompt.question},
                           {"reward", std::isnan(sample.reward) ? Json() : Json(sample.reward)},
                           {"rewards", std::move(parts)},
                           {"finish", sample.finish},
                           {"turns", sample.turns},
                           {"text", sample.text},
                           {"passages", std::move(passages)},
                           {"key", key}};
  if (!sample.error.empty()) line.set("error", sample.error);
  return line;
}

SampledAnswer sample_from(const Json& line) {
  SampledAnswer sample;
  sample.rollout = line.at("rollout").as_int();
  sample.group = line.at("group").as_int();
  sample.number = line.at("sample").as_int();
  sample.row = line.at("row").as_int();
  if (!line.at("reward").is_null()) sample.reward = line.at("reward").as_double();
  for (const auto& [name, value] : line.at("rewards").as_object()) sample.parts.push_back(value.as_double());
  sample.finish = line.at("finish").as_string();
  sample.turns = line.at("turns").as_int();
  sample.text = line.at("text").as_string();
  for (const Json& each : line.at("passages").as_array()) {
    Passage& passage = sample.passages.emplace_back();
    passage.prompt = values_of<int32_t>(each.at("prompt"));
    passage.ids = values_of<int32_t>(each.at("ids"));
    passage.sampled = values_of<uint8_t>(each.at("sampled"));
    passage.columns.rollout_log_probs = values_of<float>(each.at("log_probs"));
    if (const Json* kept = each.find("kept")) passage.columns.kept = values_of<float>(*kept);
    passage.versions = values_of<uint64_t>(each.at("versions"));
    if (const Json* experts = each.find("experts")) passage.experts = values_of<int32_t>(*experts);
  }
  if (const Json* error = line.find("error")) sample.error = error->as_string();
  return sample;
}

Json scores_to_json(const SampledAnswer& sample) {
  Json::Array passages;
  for (const Passage& passage : sample.passages) {
    Json& written = passages.emplace_back(
        Json::Object{{"old_log_probs", list_of(passage.columns.old_log_probs)},
                     {"reference_log_probs", list_of(passage.columns.reference_log_probs)}});
    if (passage.columns.values.empty()) continue;
    written.set("values", list_of(passage.columns.values));
    written.set("value_behind", double{passage.value_behind});
  }
  return Json::Object{{"rollout", sample.rollout},
                      {"group", sample.group},
                      {"sample", sample.number},
                      {"scores", std::move(passages)}};
}

void take_scores(const Json& line, SampledAnswer& sample) {
  const Json::Array& passages = line.at("scores").as_array();
  if (passages.size() != sample.passages.size())
    fail("[rollouts] scores of {} passages stand behind a sample of {}", passages.size(),
         sample.passages.size());
  for (size_t i = 0; i < passages.size(); ++i) {
    data::TokenColumns& columns = sample.passages[i].columns;
    columns.old_log_probs = values_of<float>(passages[i].at("old_log_probs"));
    columns.reference_log_probs = values_of<float>(passages[i].at("reference_log_probs"));
    if (const Json* values = passages[i].find("values")) {
      columns.values = values_of<float>(*values);
      sample.passages[i].value_behind = static_cast<float>(passages[i].at("value_behind").as_double());
    }
  }
  sample.scored = true;
}

}  // namespace temper::recipes
