#include "models/architecture.h"

#include <gtest/gtest.h>

#include "models/model.h"
#include "tests/support/tiny_model.h"

namespace temper::models {
namespace {

Json read(const std::vector<std::pair<std::string, Json>>& changes, const char* type = "llama") {
  Json config = tiny_config(type);
  for (const auto& [key, value] : changes) config.set(key, value);
  return architecture_json(type, configure(config, "config.json"));
}

Json rope(double factor) { return Json::Object{{"rope_type", "linear"}, {"factor", factor}}; }

TEST(Architecture, SpellingsAndWhatHasNoEffectAreTheSame) {
  EXPECT_EQ(read({}), read({{"transformers_version", "5.0.0"},
                            {"_comment", "a copy"},
                            {"pad_token_id", 99},
                            {"attention_dropout", 0.1},
                            {"initializer_range", 0.5}}));
  EXPECT_EQ(read({{"rope_scaling", rope(2)}}),
            read({{"rope_parameters", Json::Object{{"rope_type", "linear"},
                                                   {"factor", 2},
                                                   {"rope_theta", tiny_config("llama").at("rope_theta")}}}}));
}

TEST(Architecture, WhatCountsIsInIt) {
  EXPECT_NE(read({}), read({{"rms_norm_eps", 1e-3}}));
  EXPECT_NE(read({}), read({{"rope_theta", 77}}));
  EXPECT_NE(read({{"rope_scaling", rope(2)}}), read({{"rope_scaling", rope(4)}}));
  EXPECT_NE(read({}), read({{"attention_bias", true}}));
  EXPECT_NE(read({}, "qwen2"),
            read({{"use_sliding_window", true}, {"sliding_window", 4}, {"max_window_layers", 1}}, "qwen2"));
}

}  // namespace
}  // namespace temper::models
