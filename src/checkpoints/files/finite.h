#pragma once
#include <string>
#include <string_view>

#include "tensor/tensor.h"

namespace temper::checkpoints {

// An Error "[folder] tensor 'name': …" that says which element of compact floats on the CPU is NaN or
// infinite, the first one. They are the tensor's rows from `first_row` on. `advice` says why that may be and
// what to do.
inline constexpr std::string_view kDamagedOrDiverged =
    "the file is damaged or its training diverged: download it again, or use an earlier checkpoint";
void check_finite(const Tensor& rows, int64_t first_row, std::string_view name, const std::string& folder,
                  std::string_view advice = kDamagedOrDiverged);

}  // namespace temper::checkpoints
