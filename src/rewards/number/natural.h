#pragma once
#include <compare>
#include <cstdint>
#include <string_view>
#include <vector>

namespace temper::rewards {

// A whole number from 0 on, of any size; products take the time of schoolbooks.
class Natural {
 public:
  Natural() = default;
  explicit Natural(std::string_view digits);  // '0' to '9'; no digits are 0
  static Natural power_of_ten(int64_t exponent);

  bool is_zero() const { return limbs_.empty(); }
  std::strong_ordering operator<=>(const Natural& other) const;
  bool operator==(const Natural& other) const = default;
  Natural operator+(const Natural& other) const;
  Natural operator-(const Natural& smaller) const;
  Natural operator*(const Natural& other) const;

 private:
  static constexpr uint64_t kBase = 1'000'000'000;
  static constexpr size_t kDigits = 9;
  void drop_zeros();
  std::vector<uint32_t> limbs_;  // below kBase, the lowest first, the last one not 0
};

}  // namespace temper::rewards
