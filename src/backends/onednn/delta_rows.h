#pragma once
#include <cstdint>

// The row operations of the gated delta rule apart from matrix multiplications, float32, with the processor's
// vector instructions. Sums have a fixed order, which depends on the vector width.
namespace temper::backends::delta_rows {

float dot(const float* a, const float* b, int64_t size);
float sum(const float* a, int64_t size);
void scale(const float* from, float factor, float* to, int64_t size);       // to = factor · from
void add_scaled(const float* from, float factor, float* to, int64_t size);  // to += factor · from
// to = factor · a ∘ b.
void multiply(const float* a, const float* b, float factor, float* to, int64_t size);

// Rows [begin, end) of u := (I - N)⁻¹ u, N strictly lower triangular with element (t, s) at
// n[t * row_stride + s * column_stride]; only those rows and columns are read. `upwards`: with the inverse of
// N's transpose, from the last row to the first; the strides are those of the transpose.
struct Triangle {
  const float* n;
  int64_t row_stride, column_stride;
  int64_t begin, end;
  bool upwards = false;
};
void solve(const Triangle& triangle, float* u, int64_t width);

// Of row t of a chunk, what lies below the diagonal: gradients of D_ts, k̂_t·k̂_s and q̂_t·k̂_s from those of P
// and A.
struct DecayRow {
  const float *dp, *g;           // of P, and of A without its sign
  const float *decay, *kk, *qk;  // D_ts, k̂_t·k̂_s, q̂_t·k̂_s
  const float* dlast;            // of D_ts itself; null: nothing
  float *of_kk, *of_qk, *along;
  float beta;
};
// Gives the gradient of beta.
float decay_row(const DecayRow& row, int64_t size);

}  // namespace temper::backends::delta_rows
