#pragma once
#include "autograd/tape.h"

// What compositions are made of: tensor functions with their gradients. They compute in float32, whatever the
// dtype, and round results to the dtype of their first input; two inputs must have the same dtype. They are
// written to be obviously right, not fast: fast kernels live in backends.
namespace temper::primitives {

struct MatmulOptions {
  bool transpose_b = false;  // b is [..., n, k] instead of [..., k, n]
};
// [m, k] x [k, n] → [m, n], or the same with one leading batch dimension on both.
Var matmul(Tape& tape, const Var& a, const Var& b, MatmulOptions options = {});

// Element by element with broadcasting (sizes aligned at the right; 1 stretches).
Var add(Tape& tape, const Var& a, const Var& b);
Var sub(Tape& tape, const Var& a, const Var& b);
Var mul(Tape& tape, const Var& a, const Var& b);
Var div(Tape& tape, const Var& a, const Var& b);

Var scale(Tape& tape, const Var& x, float factor);
Var add_scalar(Tape& tape, const Var& x, float term);
Var exp(Tape& tape, const Var& x);
Var log(Tape& tape, const Var& x);
Var rsqrt(Tape& tape, const Var& x);
Var sigmoid(Tape& tape, const Var& x);
Var softplus(Tape& tape, const Var& x);  // log(1 + exp(x))
Var erf(Tape& tape, const Var& x);       // 2/√π · the integral of exp(-t²) from 0 to x
Var clamp(Tape& tape, const Var& x, float least, float most);
Var cast(Tape& tape, const Var& x, DType dtype);

// Over the last dimension, which stays with size 1.
Var sum_last(Tape& tape, const Var& x);
Var max_last(Tape& tape, const Var& x);  // a constant: no gradient flows through it

// x / sqrt(mean(x²) + eps) · weight over the last dimension; weight [its size]. Made of the others.
Var normalize_last(Tape& tape, const Var& x, const Var& weight, float eps);

Var reshape(Tape& tape, const Var& x, Shape shape);
Var transpose(Tape& tape, const Var& x, int a, int b);
Var narrow(Tape& tape, const Var& x, int dim, int64_t start, int64_t length);
// Consecutive parts along a dimension, as views; gradients are put together again.
std::vector<Var> split(Tape& tape, const Var& x, int dim, const std::vector<int64_t>& counts);
Var concat_first(Tape& tape, const std::vector<Var>& parts);  // along dimension 0
Var concat_last(Tape& tape, const Var& a, const Var& b);      // along the last dimension

// Which of `rows` rows are chosen, and for backward the places that each of them was copied to. On the CPU,
// int32.
struct ChosenRows {
  // ids [n]; an Error where one is none of the rows. The way back is needed where they have a gradient.
  ChosenRows(const Tensor& ids, int64_t rows, bool way_back);
  // Of whom the way back is known.
  ChosenRows(const Tensor& ids, int64_t rows, const Tensor& starts, const Tensor& places)
      : rows(rows), ids(ids), starts(starts), places(places) {}

  int64_t rows;
  Tensor ids;     // [n]
  Tensor starts;  // [rows + 1], of each row's part of places
  Tensor places;  // [n]: in ascending order per row
};
Var gather_rows(Tape& tape, const Var& x, const ChosenRows& chosen);  // [rows, …] → [n, …]
// The other way round, [n, …] → [rows, …]: sums of what comes from the same row, zeros where nothing does.
Var sum_rows(Tape& tape, const Var& x, const ChosenRows& chosen);
// x[..., ids[..., j]] → [..., k], for k ids of each row, int32; [...] of them: k is 1.
Var take_last(Tape& tape, const Var& x, const Tensor& ids);
// The other way round, values [..., k] float32 to [..., width]: zeros where nothing goes, sums where more
// than one value does.
Tensor put_last(const Tensor& values, const Tensor& ids, int64_t width);

}  // namespace temper::primitives
