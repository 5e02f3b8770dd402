#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/schema.h"

namespace temper::rewards {

// Of rewards that compare the text.
struct TextKeys {
  std::optional<std::string> answer = {};  // the field of the row
  std::optional<std::string> within = {};  // the tag of the part of the text that counts
  std::optional<bool> ignore_case = {};
  std::optional<double> tolerance = {};
  std::optional<std::string> pattern = {};
  std::optional<bool> full = {};
};

// Of the reward of lengths.
struct LengthKeys {
  std::optional<int64_t> max_length = {}, buffer = {}, target = {};  // tokens
};

// Of the reward of forms.
struct FormatKeys {
  std::vector<std::string> tags = {};
  std::optional<bool> only_tags = {}, opened_by_prompt = {};
};

// Of programs and servers that judge.
struct JudgeKeys {
  std::vector<std::string> command = {};  // one text is run by /bin/sh -c
  std::optional<int64_t> processes = {};
  std::string url = {};
  std::optional<int64_t> parallel = {}, retries = {};
  std::optional<double> timeout = {};  // seconds
};

// One reward, as YAML writes it, without the groups. Each type reads some of the keys; setting another one is
// an error.
struct RewardConfig {
  std::string type;       // the name of a room
  std::string name = {};  // in metrics; "": the type
  double weight = 1;
  TextKeys text = {};
  LengthKeys length = {};
  FormatKeys format = {};
  JudgeKeys judge = {};

  const std::string& metric_name() const { return name.empty() ? type : name; }
};

void describe(config::Schema& s, RewardConfig& c);

// Before anything is loaded: an Error for what cannot work. `key` ("grpo.rewards[0]") is in the messages.
void check(const RewardConfig& config, const std::string& key);
// All of a list, "grpo.rewards", whose names must differ.
void check(const std::vector<RewardConfig>& configs, const std::string& key);

}  // namespace temper::rewards
