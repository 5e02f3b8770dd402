#pragma once
#include "autograd/tape.h"
#include "quant/nf4.h"
#include "weights/layout.h"

// Frozen matrices in 4 bits (quant/nf4.h), as products read them.
namespace temper::primitives {

// Matrices of equal width on top of one another, each of which was encoded by itself: all of each, or some
// rows and columns, with the magnitudes of the whole.
struct Nf4Matrix {
  Tensor codes;   // uint8 [rows, columns / 2]
  Tensor scales;  // float32 [blocks]; with double quantization [blocks / 256]
  Tensor starts;  // int64 [rows]: a row's first element, counted from the first block's on
  // With double quantization, otherwise undefined:
  Tensor scale_codes;  // uint8 [blocks], those of each matrix from a multiple of 256 on
  Tensor offsets;      // float32 [rows]

  int64_t rows() const { return codes.dim(0); }
  int64_t columns() const { return 2 * codes.dim(1); }
  bool is_double() const { return scale_codes.defined(); }
};

// What is kept of one of the matrices: rows, from Slice::whole of it on, at Slice::own of what is kept of
// all.
struct Nf4Part {
  int64_t rows = 0;  // of the whole
  std::vector<Slice> here;
};

// Memory for matrices of these numbers of rows, uninitialized except `starts`.
Nf4Matrix empty_nf4(const std::vector<int64_t>& rows, int64_t columns, bool double_quantization,
                    Device device);
// The same for parts of matrices of `columns` columns. Only the columns `here` are kept: an even number from
// an even one on.
Nf4Matrix empty_nf4(const std::vector<Nf4Part>& parts, int64_t columns, const Slice& here,
                    bool double_quantization, Device device);
// Sets the matrix whose first row is `first`, which was encoded as this one is.
void set_nf4(const Nf4Matrix& matrix, int64_t first, const quant::Nf4& encoded);
// The same of a part, from all of its matrix.
void set_nf4(const Nf4Matrix& matrix, const Nf4Part& part, const Slice& columns, const quant::Nf4& encoded);

// [rows, columns], tag workspace: numbers times magnitudes in float32, rounded once to dtype.
Tensor dequantized(const Nf4Matrix& matrix, DType dtype);

// The matrix in `dtype` without a gradient; what needs it in backward makes it again.
Var widened(const Nf4Matrix& matrix, DType dtype);
// The same of a matrix whose codes come and go: backward reads those that are there then. It must live as
// long.
Var widened_again(const Nf4Matrix& matrix, DType dtype);

}  // namespace temper::primitives
