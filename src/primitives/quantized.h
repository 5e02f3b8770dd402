#pragma once
#include "autograd/tape.h"

// Frozen matrices in 8 bits: each row is a power of two times codes of E4M3 (OCP 8-bit Floating Point
// Specification, 2023), chosen so that the largest code of a row is above 224. Their products are exact in
// bfloat16 and float32: every kernel on every device computes with the same weights.
namespace temper::primitives {

// Sets codes [rows, columns] (float8_e4m3fn) and scales [rows] (float32) from values [rows, columns] of any
// floating-point dtype; all compact, on the CPU. An Error when a value is not finite, or 2^120 and more.
void quantize_rows(const Tensor& values, const Tensor& codes, const Tensor& scales);

// scales · codes, [rows, columns], tag workspace. float16 rounds to nearest even.
Tensor dequantized(const Tensor& codes, const Tensor& scales, DType dtype);

// A matrix as ops take it that read codes (ops/linear/linear.h).
struct Matrix {
  Matrix() = default;
  Matrix(Var matrix) : value(std::move(matrix)) {}
  Matrix(Var codes, Tensor of_rows) : value(std::move(codes)), scales(std::move(of_rows)) {}

  Var value;      // [rows, columns]: itself, or its codes: then saved() makes the matrix, and holds the codes
                  // alone
  Tensor scales;  // of codes, [rows]; otherwise undefined

  bool in_8_bits() const { return scales.defined(); }
  const Shape& shape() const { return value.shape(); }
  Var widened() const;  // itself, or the matrix where it is in 8 bits
};

// Some rows of it, [count, columns], as a view: what their gradient adds to the whole one's is zero
// elsewhere.
Matrix rows_of(Tape& tape, const Matrix& whole, int64_t first, int64_t count);

// The codes and scales of a parameter that is kept so, which mean a matrix of `dtype`.
Matrix in_8_bits(const Parameter& parameter, DType dtype);

}  // namespace temper::primitives
