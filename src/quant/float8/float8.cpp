#include "quant/number_format.h"

namespace temper::quant {

void register_float8() {
  formats().add("fp8", {kE4M3, Scaling::kFloats});
  formats().add("fp8_e5m2", {kE5M2, Scaling::kFloats});
}

}  // namespace temper::quant
