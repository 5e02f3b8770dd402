#include "quant/number_format.h"

namespace temper::quant {

void register_nvfp4() { formats().add("nvfp4", {kE2M1, Scaling::kTwoLevels, 16}); }

}  // namespace temper::quant
