#pragma once
#include "tensor/tensor.h"

namespace temper::backends {

// Cross entropy of rows of logits, one block a row; with `differentiate` the logits become their gradient in
// place, (softmax - onehot(target)) · scale. Sums are float32.
struct SoftmaxRows {
  Tensor logits;   // [rows, vocab], compact
  Tensor targets;  // [rows] int32
  Tensor places;   // [rows] int32: where each row's -log p goes in nll; undefined: `first` + row
  int64_t first = 0;
  Tensor nll;  // [tokens] float32
  float scale = 1;
  bool differentiate = false;
};
void softmax_rows(const SoftmaxRows& op);

// loss[0] = scale · Σ nll, summed by one block in a fixed order, in double.
void sum_losses(const Tensor& nll, float scale, const Tensor& loss);

// to[i] = from[places[i]] and to[places[i]] = from[i], rows of one width.
void gather_rows(const Tensor& to, const Tensor& from, const Tensor& places);
void scatter_rows(const Tensor& to, const Tensor& from, const Tensor& places);

}  // namespace temper::backends
