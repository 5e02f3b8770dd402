#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace temper {

// A JSON value. Objects keep the order of their keys; integers that fit in 64 bits stay exact.
class Json {
 public:
  using Array = std::vector<Json>;
  using Object = std::vector<std::pair<std::string, Json>>;
  enum class Kind { kNull, kBool, kInt, kFloat, kString, kArray, kObject };

  Json() = default;
  Json(std::nullptr_t) {}
  Json(bool value) : value_(value) {}
  Json(int value) : value_(int64_t{value}) {}
  Json(int64_t value) : value_(value) {}
  Json(double value) : value_(value) {}
  Json(const char* value) : value_(std::string(value)) {}
  Json(std::string value) : value_(std::move(value)) {}
  Json(std::string_view value) : value_(std::string(value)) {}
  Json(Array value) : value_(std::move(value)) {}
  Json(Object value) : value_(std::move(value)) {}
  // A copy that runs out of memory leaves the value as it was. (The variant's own copies may leave it without
  // any, and libstdc++ 12 takes it for a value then.)
  Json(const Json& other) {
    std::visit(
        [this](const auto& held) {
          auto copy = held;
          value_ = std::move(copy);
        },
        other.value_);
  }
  Json(Json&&) noexcept = default;
  Json& operator=(const Json& other) {
    Json copy(other);
    return *this = std::move(copy);
  }
  Json& operator=(Json&&) noexcept = default;
  ~Json() = default;

  // Strict RFC 8259: no duplicate keys, no trailing text, valid UTF-8, at most 512 levels deep. Errors name
  // `where`, the line and the column.
  static Json parse(std::string_view text, std::string_view where);
  static Json parse_file(const std::string& path);  // of at most kLongestText bytes (base/files.h)

  // One line when indent < 0. Floats are printed as Python does (1e-06, 1000000.0); with ascii_only,
  // everything outside ASCII is escaped as \uXXXX.
  std::string dump(int indent = -1, bool ascii_only = false) const;

  Kind kind() const { return static_cast<Kind>(value_.index()); }
  std::string_view kind_name() const;  // "null", "boolean", "integer", "number", "string", "array", "object"
  bool is_null() const { return kind() == Kind::kNull; }
  bool is_bool() const { return kind() == Kind::kBool; }
  bool is_int() const { return kind() == Kind::kInt; }
  bool is_number() const { return kind() == Kind::kInt || kind() == Kind::kFloat; }
  bool is_string() const { return kind() == Kind::kString; }
  bool is_array() const { return kind() == Kind::kArray; }
  bool is_object() const { return kind() == Kind::kObject; }

  // Typed access; a mismatch throws Error "expected an integer, found string".
  bool as_bool() const;
  int64_t as_int() const;
  double as_double() const;  // integers convert
  // A value that is about to go hands over what it holds: loops over `parse(...).as_object()` are safe.
  const std::string& as_string() const&;
  const Array& as_array() const&;
  const Object& as_object() const&;
  Array& as_array() &;
  Object& as_object() &;
  std::string as_string() &&;
  Array as_array() &&;
  Object as_object() &&;

  // Object access. find returns null when absent; at throws and names the key; set replaces or appends.
  const Json* find(std::string_view key) const;
  const Json& at(std::string_view key) const;
  void set(std::string_view key, Json value);

  bool operator==(const Json& other) const = default;

 private:
  std::variant<std::monostate, bool, int64_t, double, std::string, Array, Object> value_;
};

// As Python's repr(float): the shortest digits that read back equal, 1e-05, 0.0001, 1e+16, 3.0.
std::string format_double(double value);

}  // namespace temper
