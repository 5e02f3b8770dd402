#pragma once
#include <bit>
#include <cstdint>

namespace temper::quant {

// The numbers that the codes of one type mean: multiples of 2^(e - mantissa_bits) from `lowest` to `largest`,
// where e is the number's exponent, and at least least_exponent. Below 2^(least_exponent + 1) all steps are
// alike, and so all integers are of this kind.
struct Element {
  int bits = 8;  // of a code
  int mantissa_bits = 0, least_exponent = 0;
  float lowest = 0, largest = 0;
  bool integer = false;  // a code is the multiple in two's complement; otherwise sign, exponent, mantissa

  bool operator==(const Element&) const = default;
};

// Of `bits` bits, -2^(bits - 1) … 2^(bits - 1) - 1, or without the first (narrow), or 0 … 2^bits - 1.
constexpr Element integer_element(int bits, bool narrow, bool is_unsigned) {
  const float largest = static_cast<float>((1 << (is_unsigned ? bits : bits - 1)) - 1);
  const float lowest = is_unsigned ? 0.f : narrow ? -largest : -largest - 1;
  return {bits, 7, 7, lowest, largest, true};
}
// What GPUs need is a function: they cannot refer to variables of the host.
constexpr Element e4m3() { return {8, 3, -6, -448, 448}; }
inline constexpr Element kE4M3 = e4m3();
inline constexpr Element kE5M2{8, 2, -14, -57344, 57344};
inline constexpr Element kE3M2{6, 2, -2, -28, 28};
inline constexpr Element kE2M3{6, 3, 0, -7.5f, 7.5f};
inline constexpr Element kE2M1{4, 1, 0, -6, 6};
// 64ths from -127 to 127 (OCP Microscaling Formats, 2023).
inline constexpr Element kInt8Of64ths{8, 6, 0, -1.984375f, 1.984375f, true};

// The nearest of the numbers, ties to the even multiple; beyond the ends, the ends. NaN stays NaN. A zero has
// the sign of x, except that integers have one zero.
constexpr float round_to(const Element& element, float x) {
  const float clipped = x < element.lowest ? element.lowest : x > element.largest ? element.largest : x;
  const uint32_t bits = std::bit_cast<uint32_t>(clipped), magnitude = bits & 0x7FFFFFFF;
  const uint32_t least = static_cast<uint32_t>(element.least_exponent + 127) << 23;
  const uint32_t exponent = (magnitude & 0x7F800000) > least ? magnitude & 0x7F800000 : least;
  // A number of which the last bit is one step: the addition rounds.
  const auto high =
      std::bit_cast<float>(exponent + (static_cast<uint32_t>(23 - element.mantissa_bits) << 23));
  const float rounded = (std::bit_cast<float>(magnitude) + high) - high;
  const auto result = std::bit_cast<float>(std::bit_cast<uint32_t>(rounded) | (bits & 0x80000000));
  return element.integer ? result + 0.f : result;
}

// Of one of the numbers; its upper bits are 0 where codes have fewer than 8.
constexpr uint8_t code_of(const Element& element, float number) {
  const uint32_t bits = std::bit_cast<uint32_t>(number), mask = (1u << element.bits) - 1;
  const float step =
      std::bit_cast<float>(static_cast<uint32_t>(element.least_exponent - element.mantissa_bits + 127) << 23);
  if (element.integer)
    return static_cast<uint8_t>(static_cast<uint32_t>(static_cast<int>(number / step)) & mask);
  const float magnitude = number < 0 ? -number : number;
  const float normal = step * static_cast<float>(1 << element.mantissa_bits);
  const uint32_t code =
      magnitude < normal ? static_cast<uint32_t>(magnitude / step)
                         : ((bits & 0x7FFFFFFF) >> (23 - element.mantissa_bits)) -
                               (static_cast<uint32_t>(element.least_exponent + 126) << element.mantissa_bits);
  return static_cast<uint8_t>(((bits >> 31) << (element.bits - 1)) | code);
}

constexpr float number_of(const Element& element, uint8_t code) {
  const float step =
      std::bit_cast<float>(static_cast<uint32_t>(element.least_exponent - element.mantissa_bits + 127) << 23);
  if (element.integer) {
    const int sign = element.lowest < 0 ? (code >> (element.bits - 1)) & 1 : 0;
    return static_cast<float>(static_cast<int>(code) - (sign << element.bits)) * step;
  }
  const uint32_t sign = (code >> (element.bits - 1)) & 1u, rest = code & ((1u << (element.bits - 1)) - 1);
  const bool small = rest < (1u << element.mantissa_bits);
  const float magnitude =
      small ? static_cast<float>(rest) * step
            : std::bit_cast<float>(
                  (rest + (static_cast<uint32_t>(element.least_exponent + 126) << element.mantissa_bits))
                  << (23 - element.mantissa_bits));
  return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign << 31);
}

}  // namespace temper::quant
