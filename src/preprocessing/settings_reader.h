#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/json/json.h"

namespace temper::preprocessing {

// Values of one object of a file; a key that is null counts as absent. Errors name file and key.
class SettingsReader {
 public:
  // `prefix` stands in front of keys in errors: "size.".
  SettingsReader(const Json& object, std::string where, std::string prefix = "");

  bool has(std::string_view key) const;
  int64_t positive(std::string_view key, int64_t otherwise) const;
  bool flag(std::string_view key, bool otherwise) const;
  double number(std::string_view key, double otherwise) const;
  // A number for all three colors, or one for each.
  std::array<double, 3> colors(std::string_view key, const std::array<double, 3>& otherwise) const;
  std::string text(std::string_view key) const;  // empty where absent
  SettingsReader object(std::string_view key) const;
  [[noreturn]] void refuse(std::string_view key, std::string_view expected) const;

 private:
  const Json* find(std::string_view key) const;
  const Json* object_;  // null: absent
  std::string where_, prefix_;
};

}  // namespace temper::preprocessing
