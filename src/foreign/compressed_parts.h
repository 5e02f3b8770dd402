#pragma once
#include <vector>

#include "checkpoints/files/safetensors.h"
#include "foreign/modelopt_algorithms.h"

// The tensors that nvidia-modelopt's folders have of matrices (modelopt_algorithms.h), as compressed-tensors'
// folders have them: the same codes and scales under other names and in other shapes. Integers of weights
// whose inputs are not quantized are packed in words. X.weight_scale_2 and X.input_scale of NVFP4 become
// X.weight_global_scale and X.input_global_scale, which are their reciprocals, rounded to float32.
namespace temper::foreign {

// Forms that nvidia-modelopt has no name for: integers with zero points, X.weight_zero_point I8 of the
// scales' shape in addition to those tensors, and X.input_zero_point. Where weights are packed in words, zero
// points are, too, along the rows. Null: there is none.
const ModeloptAlgorithm* find_compressed_algorithm(std::string_view name);
bool only_compressed(const ModeloptAlgorithm& algorithm);

// The format of compressed-tensors for an algorithm; "": it has none.
std::string_view compressed_format(const ModeloptAlgorithm& algorithm);

// Of one tensor of a matrix: what is there in its place. An Error "[name] …" for a tensor that
// compressed-tensors has no place for (pre_quant_scale).
std::vector<TensorInfo> compressed_infos(const ModeloptAlgorithm& algorithm, const TensorInfo& info);
std::vector<Tensor> compressed_tensors(const ModeloptAlgorithm& algorithm, const TensorInfo& info,
                                       const Tensor& tensor);

}  // namespace temper::foreign
