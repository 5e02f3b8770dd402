#pragma once
#include "checkpoints/hf_folder.h"

// Matrices of experts in MXFP4 (OCP Microscaling Formats, 2023), as gpt-oss's files have them. Of the tensor
// NAME there are
//   NAME_blocks  [experts, rows of one, columns / 32, 16] U8: two codes of E2M1 a byte, the lower four bits
//   first NAME_scales  [experts, rows of one, columns / 32] U8: exponents of E8M0, 2^(byte - 127); 255 is NaN
// where NAME itself would be [experts, columns, rows of one] (WeightSpec::experts_in_files). Numbers are
// exact in bfloat16.
namespace temper::checkpoints {

inline constexpr int64_t kMxfp4Block = 32;

// Whether the folder has the parameter so.
bool holds_mxfp4(const ModelFolder& folder, const WeightSpec& spec);
bool holds_mxfp4(const ModelFolder& folder, const WeightTable& table);  // any of its parameters
// The parameter of which a tensor of files is the blocks or the scales; null: of none.
const WeightSpec* find_mxfp4(const WeightTable& table, std::string_view hf_name);
// What is wrong with a parameter's two tensors, one sentence each; none where they are as above.
std::vector<std::string> misfits_of_mxfp4(const ModelFolder& folder, const WeightSpec& spec);
// Rows of one expert in the order of memory, [rows of one, columns] float32.
Tensor read_mxfp4(const ModelFolder& folder, const WeightSpec& spec, int64_t expert);

}  // namespace temper::checkpoints
