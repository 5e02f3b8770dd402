#pragma once
#include "foreign/modelopt_algorithms.h"

// Matrices of compressed-tensors' folders whose blocks have narrow scales. Of X.weight [rows, columns] there
// are
//   nvfp4-pack-quantized  X.weight_packed U8 [rows, columns / 2] (the even column in the lower half),
//                         X.weight_scale E4M3 [rows, columns / 16], X.weight_global_scale F32 [1]:
//                         values are code · (scale / global)
//   mxfp4-pack-quantized  X.weight_packed, X.weight_scale U8 [rows, columns / 32]: powers 2^(code - 127)
//   mxfp8-quantized       X.weight E4M3 [rows, columns], X.weight_scale as above
namespace temper::foreign {

inline constexpr std::string_view kCompressedGlobalScale = ".weight_global_scale";

bool in_compressed_blocks(const ModelFolder& folder, const QuantizedMatrix& matrix);
std::vector<std::string> misfits_of_compressed_blocks(const ModelFolder& folder,
                                                      const QuantizedMatrix& matrix);
// The form in which it is written.
ModeloptChoice choice_of_compressed_blocks(const ModelFolder& folder, const QuantizedMatrix& matrix);
// As QuantizedForm::rows.
Tensor rows_of_compressed_blocks(const ModelFolder& folder, const QuantizedMatrix& matrix, int64_t first,
                                 int64_t count);

}  // namespace temper::foreign
