#include "rewards/reward_config.h"

#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "base/files.h"
#include "base/parts/registry.h"
#include "config/load.h"
#include "rewards/room.h"
#include "tests/support/errors.h"

namespace temper::rewards {
namespace {

struct Keys {
  std::vector<RewardConfig> rewards;
};
void describe(config::Schema& s, Keys& c) { s.list("rewards", c.rewards, "rewards"); }

void load_and_check(std::string_view yaml) {
  Keys keys;
  config::Schema schema = config::schema_of(keys);
  config::load_text(schema, yaml, "run.yaml");
  check(keys.rewards, "grpo.rewards");
}

std::string message(std::string_view yaml) {
  return error_of([&] { load_and_check(yaml); });
}

TEST(RewardConfig, Names) {
  EXPECT_EQ(message("rewards: [{type: number}, {type: exact_match, ignore_case: true}]"), "");
  EXPECT_EQ(
      message("rewards: [{type: nmber}]"),
      "[grpo.rewards[0].type] 'nmber' is an unknown reward type; did you mean number?; use one of " + [] {
        std::string names;
        for (const auto& entry : registry<Room>().entries())
          names += (names.empty() ? "" : ", ") + entry.name;
        return names;
      }());
  EXPECT_EQ(message("rewards: [{type: number}, {type: exact_match}, {type: number}]"),
            "[grpo.rewards[2].name] is 'number', as that of grpo.rewards[0]; give it another name");
  EXPECT_EQ(message("rewards: [{type: number}, {type: number, name: close, tolerance: 1}]"), "");
  EXPECT_EQ(message("rewards: [{type: number, name: 'a b'}]"),
            "[grpo.rewards[0].name] 'a b' may have letters, digits, '_', '-' and '.' only");
}

TEST(RewardConfig, KeysOfOtherTypesAreRefused) {
  EXPECT_EQ(
      message("rewards: [{type: number}, {type: number, name: b, ignore_case: false}]"),
      "[grpo.rewards[1].ignore_case] is not read by type number, which reads answer, within, tolerance; "
      "leave it out");
  EXPECT_EQ(
      message("rewards: [{type: exact_match, tags: [a]}]"),
      "[grpo.rewards[0].tags] is not read by type exact_match, which reads answer, within, ignore_case; "
      "leave it out");
}

// A key that no room reads could never be set, and a room that asks for an unknown one has a typing mistake.
TEST(RewardConfig, EveryKeyIsOfARoom) {
  RewardConfig config;
  std::set<std::string> declared, read;
  const config::Schema schema = config::schema_of(config);
  for (const auto& field : schema.fields()) declared.insert(field->name);
  for (const auto& entry : registry<Room>().entries())
    read.insert(entry.value.keys.begin(), entry.value.keys.end());
  read.insert({"type", "name", "weight"});
  if (registry<Room>().find("http") == nullptr) read.insert({"url", "retries"});
  EXPECT_EQ(read, declared);
}

// What docs/rewards.md shows of each type.
TEST(RewardConfig, TheExamplesOfTheDocumentation) {
  std::istringstream page(read_file(TEMPER_SOURCE_DIR "/docs/rewards.md"));
  std::set<std::string> types;
  for (std::string line; std::getline(page, line);) {
    const size_t begin = line.find("- {type: ");
    if (begin == std::string::npos || begin != line.find_first_not_of(' ')) continue;
    const std::string type = line.substr(begin + 9, line.find_first_of(",}", begin) - begin - 9);
    if (registry<Room>().find(type) == nullptr) continue;  // this build lacks it
    types.insert(type);
    EXPECT_EQ(message("rewards:\n  " + line.substr(begin)), "") << line;
  }
  EXPECT_EQ(types.size(), registry<Room>().entries().size());
}

}  // namespace
}  // namespace temper::rewards
