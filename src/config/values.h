#pragma once
#include <array>
#include <map>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "config/field.h"

// Between the program's variables and Json; one overload for each type a field may have.
namespace temper::config {

// The names of an enum's values.
template <class Enum>
using Names = std::vector<std::pair<std::string, Enum>>;

// Free keys, each with free keys of its own: {"layers.0-3.*": {rms_norm: eager}}.
using Table = std::map<std::string, std::map<std::string, std::string>>;

namespace detail {

template <class T>
struct TypeOf {
  static_assert(!std::is_same_v<T, T>,
                "a field is bool, int, int64_t, double, std::string, an optional or "
                "vector of these, std::array<double, N> or Table; enums use Schema::choice");
};
template <>
struct TypeOf<bool> {
  static Type get() { return {.scalar = Type::Scalar::kBool}; }
};
template <>
struct TypeOf<int> {
  static Type get() {
    using Limits = std::numeric_limits<int>;
    return {.scalar = Type::Scalar::kInt, .lowest = Limits::min(), .highest = Limits::max()};
  }
};
template <>
struct TypeOf<int64_t> {
  static Type get() { return {.scalar = Type::Scalar::kInt}; }
};
template <>
struct TypeOf<double> {
  static Type get() { return {.scalar = Type::Scalar::kFloat}; }
};
template <>
struct TypeOf<std::string> {
  static Type get() { return {.scalar = Type::Scalar::kString}; }
};
template <class T>
struct TypeOf<std::optional<T>> {
  static Type get() {
    Type type = TypeOf<T>::get();
    type.optional = true;
    return type;
  }
};
template <class T>
struct TypeOf<std::vector<T>> {
  static Type get() {
    Type type = TypeOf<T>::get();
    type.list = true;
    return type;
  }
};
template <>
struct TypeOf<Table> {
  static Type get() { return {.scalar = Type::Scalar::kTable}; }
};
template <size_t N>
struct TypeOf<std::array<double, N>> {
  static Type get() { return {.scalar = Type::Scalar::kFloat, .list = true, .size = N}; }
};

// An enum, or what an optional or vector of one holds.
template <class T>
struct EnumOf {
  using type = T;
};
template <class T>
struct EnumOf<std::optional<T>> : EnumOf<T> {};
template <class T>
struct EnumOf<std::vector<T>> : EnumOf<T> {};

// Converts with `scalar` applied to each scalar: variable -> Json.
template <class T, class Scalar>
Json to_json(const T& value, const Scalar& scalar) {
  return scalar(value);
}
template <class T, class Scalar>
Json to_json(const std::optional<T>& value, const Scalar& scalar) {
  return value ? to_json(*value, scalar) : Json();
}
template <class List, class Scalar>
Json list_to_json(const List& values, const Scalar& scalar) {
  Json::Array items;
  for (const auto& value : values) items.push_back(scalar(value));
  return items;
}
template <class T, class Scalar>
Json to_json(const std::vector<T>& values, const Scalar& scalar) {
  return list_to_json(values, scalar);
}
template <size_t N, class Scalar>
Json to_json(const std::array<double, N>& values, const Scalar& scalar) {
  return list_to_json(values, scalar);
}

// Json of the right type and size -> variable; `scalar(json, variable)` sets one scalar.
template <class T, class Scalar>
void from_json(const Json& json, T& value, const Scalar& scalar) {
  scalar(json, value);
}
template <class T, class Scalar>
void from_json(const Json& json, std::optional<T>& value, const Scalar& scalar) {
  value.reset();
  if (!json.is_null()) from_json(json, value.emplace(), scalar);
}
template <class T, class Scalar>
void from_json(const Json& json, std::vector<T>& values, const Scalar& scalar) {
  values.clear();
  for (const Json& item : json.as_array()) {
    T value{};
    scalar(item, value);
    values.push_back(std::move(value));
  }
}
template <size_t N, class Scalar>
void from_json(const Json& json, std::array<double, N>& values, const Scalar& scalar) {
  for (size_t i = 0; i < N; ++i) scalar(json.as_array().at(i), values[i]);
}

struct PlainToJson {
  Json operator()(const Table& table) const {
    Json::Object rows;
    for (const auto& [row, cells] : table) {
      Json::Object values;
      for (const auto& [key, value] : cells) values.emplace_back(key, value);
      rows.emplace_back(row, std::move(values));
    }
    return rows;
  }
  template <class T>
  Json operator()(const T& value) const {
    return Json(value);
  }
};
struct PlainFromJson {
  void operator()(const Json& json, Table& table) const {
    table.clear();
    for (const auto& [row, cells] : json.as_object()) {
      auto& values = table[row];
      for (const auto& [key, value] : cells.as_object()) values[key] = value.as_string();
    }
  }
  void operator()(const Json& json, bool& value) const { value = json.as_bool(); }
  void operator()(const Json& json, int& value) const { value = static_cast<int>(json.as_int()); }
  void operator()(const Json& json, int64_t& value) const { value = json.as_int(); }
  void operator()(const Json& json, double& value) const { value = json.as_double(); }
  void operator()(const Json& json, std::string& value) const { value = json.as_string(); }
};

template <class Enum>
struct ChoiceToJson {
  Names<Enum> names;
  Json operator()(Enum value) const {
    for (const auto& [name, known] : names)
      if (known == value) return name;
    invariant(false, "a choice holds a value that has no name");
    return {};
  }
};
template <class Enum>
struct ChoiceFromJson {
  Names<Enum> names;
  void operator()(const Json& json, Enum& value) const {
    for (const auto& [name, known] : names)
      if (json.as_string() == name) value = known;
  }
};

}  // namespace detail
}  // namespace temper::config
