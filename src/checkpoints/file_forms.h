#pragma once
#include "tensor/tensor.h"
#include "weights/weight_table.h"

// How files hold the elements of a parameter, where that is not as memory does (WeightSpec::transposed,
// experts_in_files).
namespace temper::checkpoints {

// Of a stacked tensor (WeightSpec::stacked): its shape in files, its rows [spec.shape] and the way back;
// `transposed`: files have each expert's transpose.
Shape stacked_in_files(const WeightSpec& spec, bool transposed);
Tensor from_stacked(const WeightSpec& spec, const Tensor& held, bool transposed);
Tensor to_stacked(const WeightSpec& spec, const Tensor& rows, bool transposed);

// Of a source with `rows` of the parameter's rows.
Shape shape_in_files(const WeightSpec& spec, int64_t rows);
// What a file holds of a source, as the parameter's rows [rows, …], and back. Views, but where a transpose is
// seen in another shape. Experts in a file's form of their own are handed over all at once.
Tensor from_file(const WeightSpec& spec, const Tensor& held);
Tensor to_file(const WeightSpec& spec, const Tensor& rows);

}  // namespace temper::checkpoints
