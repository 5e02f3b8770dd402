#pragma once
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

#include "base/error.h"

namespace temper::collectives {

// Values as bytes that another rank of this program reads: numbers and plain structs as they are in memory,
// texts and lists behind their lengths. A struct with lists travels by all of its fields, which a structured
// binding gives; a field that it gets later cannot be forgotten, as the binding no longer compiles:
//
//   template <class Row>
//   auto fields_of(Row& row) { auto& [ids, targets] = row; return std::tie(ids, targets); }
//
//   put_fields(bytes, fields_of(row));
//   take_fields(bytes, fields_of(row));
template <class T>
void put(std::string& bytes, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

template <class T>
void put(std::string& bytes, const std::vector<T>& values) {
  put(bytes, static_cast<int64_t>(values.size()));
  if constexpr (std::is_trivially_copyable_v<T>)
    bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  else
    for (const T& value : values) put(bytes, value);
}

inline void put(std::string& bytes, const std::string& text) {
  put(bytes, static_cast<int64_t>(text.size()));
  bytes += text;
}

// From the beginning of `bytes`, which it leaves there no longer.
template <class T>
void take(std::string_view& bytes, T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  invariant(bytes.size() >= sizeof value, "a rank reads as many bytes as another wrote");
  std::memcpy(&value, bytes.data(), sizeof value);
  bytes.remove_prefix(sizeof value);
}

template <class T>
void take(std::string_view& bytes, std::vector<T>& values) {
  int64_t count = 0;
  take(bytes, count);
  values.resize(static_cast<size_t>(count));
  for (T& value : values) take(bytes, value);
}

inline void take(std::string_view& bytes, std::string& text) {
  int64_t size = 0;
  take(bytes, size);
  invariant(static_cast<int64_t>(bytes.size()) >= size, "a rank reads as many bytes as another wrote");
  text = bytes.substr(0, static_cast<size_t>(size));
  bytes.remove_prefix(text.size());
}

template <class Fields>
void put_fields(std::string& bytes, const Fields& fields) {
  std::apply([&](const auto&... each) { (put(bytes, each), ...); }, fields);
}

template <class Fields>
void take_fields(std::string_view& bytes, const Fields& fields) {
  std::apply([&](auto&... each) { (take(bytes, each), ...); }, fields);
}

}  // namespace temper::collectives
