#include <string>

#include "quant/number_format.h"

namespace temper::quant {

// Of 2 to 8 bits: "int8", "int8_narrow" without its lowest value, "uint8" for what is never negative.
void register_integer() {
  for (int bits = 2; bits <= 8; ++bits) {
    const std::string width = std::to_string(bits);
    formats().add("int" + width, {integer_element(bits, false, false), Scaling::kIntegers});
    formats().add("int" + width + "_narrow", {integer_element(bits, true, false), Scaling::kIntegers});
    formats().add("uint" + width, {integer_element(bits, false, true), Scaling::kIntegers});
  }
}

}  // namespace temper::quant
