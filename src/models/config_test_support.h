#pragma once
#include <gtest/gtest.h>

#include "models/model.h"
#include "tests/support/errors.h"
#include "tests/support/tiny_model.h"

// What tests of families' configurations share.
namespace temper::models {

// The tiny configuration of a family with some keys set ("null" removes one).
inline Json with(const char* type, const std::string& changes) {
  Json::Object object = tiny_config(type).as_object();
  const Json parsed = Json::parse(changes, "changes");
  for (const auto& [key, value] : parsed.as_object()) {
    const auto same = [&key = key](const auto& member) { return member.first == key; };
    std::erase_if(object, same);
    object.emplace_back(key, value);
  }
  return object;
}

inline Json described(const char* type, const std::string& changes = "{}") {
  return layers::describe(configure(with(type, changes), "config.json"));
}

inline std::string refusal(const char* type, const std::string& changes) {
  const std::string message = error_of([&] { described(type, changes); });
  return message.empty() ? "accepted" : message;
}

inline void expect_refused(const char* type, const std::string& changes, const std::string& with) {
  EXPECT_NE(refusal(type, changes).find(with), std::string::npos) << changes << "\n"
                                                                  << refusal(type, changes);
}

}  // namespace temper::models
