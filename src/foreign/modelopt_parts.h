#pragma once
#include <vector>

#include "checkpoints/files/safetensors.h"
#include "foreign/modelopt_algorithms.h"
#include "quant/number_format.h"

// One matrix as nvidia-modelopt's folders have it (modelopt_algorithms.h).
namespace temper::foreign {

// The number that codes are multiplied by (with scales of blocks, that those are multiplied by), and that
// inputs are divided by. Training divides integers by largest / amax instead: one rounding lies between the
// two.
float modelopt_scale(const quant::Format& format, float amax);
// An amax whose scale this is, where there is one, else the nearest.
float amax_of_scale(const quant::Format& format, float scale);

// As ModeloptAlgorithm spells it.
DType dtype_in_files(std::string_view name);
// The same bytes, as codes of another dtype.
Tensor seen_as(const Tensor& bytes, DType dtype);

// The format of an algorithm's weights; null: matrices are read in it, but not written.
const quant::Format* written_format(const ModeloptAlgorithm& algorithm);

// X.weight, X.weight_scale and, of some, X.weight_scale_2 of the matrix X.weight [rows, columns].
std::vector<TensorInfo> modelopt_infos(const ModeloptChoice& form, const std::string& module, int64_t rows,
                                       int64_t columns);
// Those tensors of values [rows, columns] float32. `amax`: of the elements that share a scale of the whole,
// which may be more than these; others are found here. An Error "[module] …" for what does not fit the form.
std::vector<Tensor> modelopt_tensors(const ModeloptChoice& form, const std::string& module,
                                     const Tensor& values, float amax);

}  // namespace temper::foreign
