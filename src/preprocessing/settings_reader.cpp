#include "preprocessing/settings_reader.h"

#include <algorithm>

#include "base/error.h"

namespace temper::preprocessing {

SettingsReader::SettingsReader(const Json& object, std::string where, std::string prefix)
    : object_(&object), where_(std::move(where)), prefix_(std::move(prefix)) {
  if (!object.is_object() && !object.is_null())
    fail("[{}] {} is {}, expected an object", where_,
         prefix_.empty() ? "the file" : prefix_.substr(0, prefix_.size() - 1), object.kind_name());
}

const Json* SettingsReader::find(std::string_view key) const {
  const Json* const value = object_->is_object() ? object_->find(key) : nullptr;
  return value == nullptr || value->is_null() ? nullptr : value;
}

bool SettingsReader::has(std::string_view key) const { return find(key) != nullptr; }

int64_t SettingsReader::positive(std::string_view key, int64_t otherwise) const {
  const Json* const value = find(key);
  if (value == nullptr) return otherwise;
  constexpr int64_t kMost = int64_t{1} << 40;
  if (!value->is_int() || value->as_int() < 1 || value->as_int() > kMost)
    refuse(key, "a whole number from 1");
  return value->as_int();
}

bool SettingsReader::flag(std::string_view key, bool otherwise) const {
  const Json* const value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_bool()) refuse(key, "true or false");
  return value->as_bool();
}

double SettingsReader::number(std::string_view key, double otherwise) const {
  const Json* const value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_number()) refuse(key, "a number");
  return value->as_double();
}

std::array<double, 3> SettingsReader::colors(std::string_view key,
                                             const std::array<double, 3>& otherwise) const {
  const Json* const value = find(key);
  if (value == nullptr) return otherwise;
  std::array<double, 3> out{};
  if (value->is_number()) {
    out.fill(value->as_double());
    return out;
  }
  const bool three = value->is_array() && value->as_array().size() == 3 &&
                     std::all_of(value->as_array().begin(), value->as_array().end(),
                                 [](const Json& one) { return one.is_number(); });
  if (!three) refuse(key, "three numbers, of red, green and blue");
  std::transform(value->as_array().begin(), value->as_array().end(), out.begin(),
                 [](const Json& one) { return one.as_double(); });
  return out;
}

std::string SettingsReader::text(std::string_view key) const {
  const Json* const value = find(key);
  if (value == nullptr) return "";
  if (!value->is_string()) refuse(key, "a string");
  return value->as_string();
}

SettingsReader SettingsReader::object(std::string_view key) const {
  static const Json kAbsent;
  const Json* const value = find(key);
  return {value == nullptr ? kAbsent : *value, where_, fmt::format("{}{}.", prefix_, key)};
}

void SettingsReader::refuse(std::string_view key, std::string_view expected) const {
  const Json* const value = find(key);
  fail("[{}] {}{} is {}, expected {}", where_, prefix_, key, value == nullptr ? "missing" : value->dump(),
       expected);
}

}  // namespace temper::preprocessing
