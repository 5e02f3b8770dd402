#pragma once
#include "checkpoints/hf_folder.h"

namespace temper::checkpoints {

// An Error where the folder has a kept_code(), so that its model cannot be saved as numbers.
void check_kept(const ModelFolder& folder, const WeightTable& table);

}  // namespace temper::checkpoints
