#pragma once
#include "primitives/functors.h"
#include "quant/groups.h"
#include "tensor/tensor.h"

namespace temper::primitives {

struct Nf4Matrix;

// What a type of device computes for the primitives, which keep the tape. All tensors of a call lie on one
// device, compact and of the right shape; they are float32 and ids are int32 within range, unless said
// otherwise. Sums are formed in a fixed order: results repeat bit by bit.
struct PrimitiveFunctions {
  void (*unary)(const Unary& f, const Tensor& x, const Tensor& y) = nullptr;
  // dx = dy · f'
  void (*unary_gradient)(const Unary& f, const Tensor& x, const Tensor& y, const Tensor& dy,
                         const Tensor& dx) = nullptr;
  void (*binary)(const Binary& f, const Tensor& a, const Tensor& b, const Tensor& y) = nullptr;
  // da = Σ dy · ∂f/∂a over what a was stretched to, db likewise; undefined: not wanted.
  void (*binary_gradient)(const Binary& f, const Tensor& a, const Tensor& b, const Tensor& dy,
                          const Tensor& da, const Tensor& db) = nullptr;
  // c [batch, m, n] = a [batch, m, k] b [batch, k, n]; a transposed one is stored [batch, k, m], [batch, n,
  // k].
  void (*matmul)(const Tensor& a, bool transpose_a, const Tensor& b, bool transpose_b,
                 const Tensor& c) = nullptr;
  void (*sum_last)(const Tensor& x, const Tensor& y) = nullptr;     // y [..., 1]
  void (*max_last)(const Tensor& x, const Tensor& y) = nullptr;     // the same; x's width is 1 or more
  void (*spread_last)(const Tensor& x, const Tensor& y) = nullptr;  // x [..., 1] into each element of a row
  // y[r] = Σ x[ids[i]] over starts[r] <= i < starts[r + 1], in float32 and in the order of i; without starts
  // y[r] = x[ids[r]]. x and y [rows, …] of one floating-point dtype; x's rows may have any stride.
  void (*sum_listed_rows)(const Tensor& x, const Tensor& starts, const Tensor& ids,
                          const Tensor& y) = nullptr;
  // y[r, j] = x[r, ids[r, j]], and dx[r, c] = Σ dy[r, j] over the j of ids[r, j] = c.
  void (*take_last)(const Tensor& x, const Tensor& ids, const Tensor& y) = nullptr;
  void (*take_last_gradient)(const Tensor& dy, const Tensor& ids, const Tensor& dx) = nullptr;
  // y[r, i] = scales[r] · codes[r, i], y of any floating-point dtype (primitives/quantized.h).
  void (*dequantize)(const Tensor& codes, const Tensor& scales, const Tensor& y) = nullptr;
  void (*dequantize_nf4)(const Nf4Matrix& matrix, const Tensor& y) = nullptr;  // primitives/nf4.h
  // primitives/amax.h
  void (*grow_amax)(const Tensor& x, const Tensor& amax, quant::Extreme extreme) = nullptr;
  // primitives/expert_counts.h
  void (*add_counts)(const Tensor& counts, const Tensor& more) = nullptr;
  void (*move_biases)(const Tensor& biases, const Tensor& counts, float rate, const Tensor& norm) = nullptr;
};

// Rooms of backends register devices; the CPU's own need no registration.
void register_primitive_functions(DeviceType type, PrimitiveFunctions functions);
const PrimitiveFunctions& primitive_functions(Device device);  // an error where the build has none

}  // namespace temper::primitives
