#pragma once
#include "ops/linear/linear.h"

namespace temper::backends {

ops::Kernel<ops::Linear> linear_kernel();

}  // namespace temper::backends
