#pragma once
#include <string_view>

#include "base/parts/registry.h"
#include "quant/format.h"
#include "quant/groups.h"

namespace temper::quant {

// What rooms register, by the name that configurations write.
inline Registry<Format>& formats() { return registry<Format>(); }

// An Error with the nearest name where there is none; it begins with `where`.
const Format& format_named(std::string_view name, std::string_view where = "[quantize]");

// Values as they are stored.
struct Encoded {
  Tensor codes;   // uint8, of the values' shape, or packed along their columns (quant/packing.h)
  Tensor scales;  // uint8 [..., columns / block], of formats with blocks: codes of E4M3, or of powers of two
  Tensor
      amax;  // [row groups, column groups], or with experts in front; undefined where the format needs none
};

// Values (compact, on the CPU, any floating-point dtype) by the arithmetic that fakes the format: what codes
// mean is what ops/fake_quantize gives, bit for bit. An Error where a value or an amax is not finite, where
// amax does not fit (quant/groups.h), and where blocks or what fills bytes do not divide the columns. `name`
// is of the tensor, for errors.
Encoded encode(std::string_view name, const Format& format, const Tensor& values, const Tensor& amax);

}  // namespace temper::quant
