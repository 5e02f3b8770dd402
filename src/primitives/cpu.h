#pragma once
#include "primitives/functors.h"
#include "quant/groups.h"
#include "tensor/tensor.h"

// The CPU's PrimitiveFunctions (device_functions.h).
namespace temper::primitives {
struct Nf4Matrix;
}

namespace temper::primitives::cpu {

void unary(const Unary& f, const Tensor& x, const Tensor& y);
void unary_gradient(const Unary& f, const Tensor& x, const Tensor& y, const Tensor& dy, const Tensor& dx);
void binary(const Binary& f, const Tensor& a, const Tensor& b, const Tensor& y);
void binary_gradient(const Binary& f, const Tensor& a, const Tensor& b, const Tensor& dy, const Tensor& da,
                     const Tensor& db);
void matmul(const Tensor& a, bool transpose_a, const Tensor& b, bool transpose_b, const Tensor& c);
void sum_last(const Tensor& x, const Tensor& y);
void max_last(const Tensor& x, const Tensor& y);
void spread_last(const Tensor& x, const Tensor& y);
void sum_listed_rows(const Tensor& x, const Tensor& starts, const Tensor& ids, const Tensor& y);
void take_last(const Tensor& x, const Tensor& ids, const Tensor& y);
void take_last_gradient(const Tensor& dy, const Tensor& ids, const Tensor& dx);
void dequantize(const Tensor& codes, const Tensor& scales, const Tensor& y);
void dequantize_nf4(const Nf4Matrix& matrix, const Tensor& y);
void grow_amax(const Tensor& x, const Tensor& amax, quant::Extreme extreme);
void add_counts(const Tensor& counts, const Tensor& more);
void move_biases(const Tensor& biases, const Tensor& counts, float rate, const Tensor& norm);

}  // namespace temper::primitives::cpu
