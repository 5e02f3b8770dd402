#include "rewards/reward_config.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/parts/registry.h"
#include "base/text.h"
#include "rewards/room.h"

namespace temper::rewards {
namespace {

// Rooms that a build may lack, with what they need.
const std::map<std::string, std::string_view> kOptionalRooms{
    {"http", "libcurl (Debian: libcurl4-openssl-dev)"}};

std::vector<std::string> types() {
  std::vector<std::string> names;
  for (const auto& entry : registry<Room>().entries()) names.push_back(entry.name);
  return names;
}

const Room& room_of(const RewardConfig& config, const std::string& key) {
  if (const Room* room = registry<Room>().find(config.type)) return *room;
  if (const auto missing = kOptionalRooms.find(config.type); missing != kOptionalRooms.end())
    fail("[{}.type] this program was built without {}, which needs {}; install it and build again", key,
         config.type, missing->second);
  const std::string near = nearest_name(config.type, types());
  fail("[{}.type] '{}' is an unknown reward type{}; use one of {}", key, config.type,
       near.empty() ? "" : fmt::format("; did you mean {}?", near), join(types()));
}

// The keys that were set, except those that every type has.
std::vector<std::string> set_keys(const RewardConfig& config) {
  RewardConfig set = config, none;
  const config::Schema schema = config::schema_of(set), defaults = config::schema_of(none);
  std::vector<std::string> keys;
  for (const auto& field : schema.fields())
    if (field->name != "type" && field->name != "name" && field->name != "weight" &&
        field->get() != defaults.find(field->name)->get())
      keys.push_back(field->name);
  return keys;
}

// Names become parts of the names of metrics.
void check_name(const std::string& name, const std::string& key) {
  constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
  if (name.find_first_not_of(kAllowed) != std::string::npos)
    fail("[{}.name] '{}' may have letters, digits, '_', '-' and '.' only", key, name);
}

}  // namespace

void describe(config::Schema& s, RewardConfig& c) {
  s.field("type", c.type, "What judges the answers (docs/rewards.md).").required();
  s.field("name", c.name, "The name of the reward in metrics. Omitted: its type.");
  s.field("weight", c.weight, "The factor of the reward in the sum of all rewards.");
  s.field(
      "answer", c.text.answer,
      "The field of a row with the right answer, for exact_match and number. Omitted: answer, or else the "
      "row's completion or last message.");
  s.field("within", c.text.within,
          "Only the text within this tag counts, for exact_match, number and pattern: answer means "
          "<answer>…</answer>. Omitted: all of the text.");
  s.field("ignore_case", c.text.ignore_case,
          "Compare without upper and lower case; exact_match and pattern.");
  s.field("tolerance", c.text.tolerance, "The largest difference of two numbers that count as equal; number.")
      .at_least(0);
  s.field("pattern", c.text.pattern, "The regular expression (PCRE2) of type pattern.");
  s.field("full", c.text.full, "The pattern must match the whole text, not a part of it; pattern.");
  s.field("max_length", c.length.max_length, "Tokens of an answer at which the reward is -1; length.")
      .at_least(1);
  s.field("buffer", c.length.buffer,
          "Tokens below max_length at which the reward begins to fall from 0; length.")
      .at_least(1);
  s.field("target", c.length.target, "Tokens that an answer should have; length, instead of max_length.")
      .at_least(1);
  s.field("tags", c.format.tags, "Tags that an answer must have, each once and in this order; format.");
  s.field("only_tags", c.format.only_tags, "Nothing but white space may stand outside of the tags; format.");
  s.field("opened_by_prompt", c.format.opened_by_prompt,
          "The prompt ends with the first opening tag; format.");
  s.field("command", c.judge.command,
          "The program of type program: one text, which /bin/sh -c runs, or a list of a program and its "
          "arguments.");
  s.field("processes", c.judge.processes, "How many processes of the program run at once; program.")
      .at_least(1)
      .at_most(1024);
  s.field("url", c.judge.url, "The address to which type http sends answers.");
  s.field(
       "parallel", c.judge.parallel,
       "How many answers a program has at once (omitted: 1), or how many requests run at once (omitted: 8); "
       "program and http.")
      .at_least(1)
      .at_most(1024);
  s.field("retries", c.judge.retries, "How often a request is repeated when a server cannot serve it; http.")
      .at_least(0)
      .at_most(100);
  s.field("timeout", c.judge.timeout, "Seconds that judging an answer may take; program and http.")
      .above(0)
      .at_most(1e6);
}

void check(const RewardConfig& config, const std::string& key) {
  const Room& room = room_of(config, key);
  for (const std::string& set : set_keys(config))
    if (std::find(room.keys.begin(), room.keys.end(), set) == room.keys.end())
      fail("[{}.{}] is not read by type {}, which reads {}; leave it out", key, set, config.type,
           join({room.keys.begin(), room.keys.end()}));
  check_name(config.metric_name(), key);
  room.check(config, key);
}

void check(const std::vector<RewardConfig>& configs, const std::string& key) {
  std::map<std::string, size_t> seen;
  for (size_t i = 0; i < configs.size(); ++i) {
    check(configs[i], fmt::format("{}[{}]", key, i));
    const auto [at, is_new] = seen.emplace(configs[i].metric_name(), i);
    if (!is_new)
      fail("[{}[{}].name] is '{}', as that of {}[{}]; give it another name", key, i, at->first, key,
           at->second);
  }
  const auto only_measured = [](const RewardConfig& config) { return config.weight == 0; };
  if (!configs.empty() && std::all_of(configs.begin(), configs.end(), only_measured))
    fail("[{}] all weights are 0, so every answer would be worth 0; give one of them another weight", key);
}

}  // namespace temper::rewards
