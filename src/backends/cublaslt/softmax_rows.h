#pragma once
#include "ops/cross_entropy/cross_entropy.h"

namespace temper::backends {

// Cross entropy of rows of logits; with `differentiate` the logits become their gradient in
// place, (softmax · (1 + 2 z_loss lse) - onehot(target)) · scale · f. Sums are float32.
struct SoftmaxRows {
  Tensor logits;   // [rows, vocab], compact
  Tensor targets;  // [rows] int32; a row without a target (kIgnore) has no loss, and a gradient of 0
  Tensor places;   // [rows] int32: where each row's -log p goes in nll; undefined: `first` + row
  int64_t first = 0;
  Tensor nll;            // [tokens] float32
  Tensor z;              // [tokens] float32: z_loss · lse²; undefined when z_loss is 0
  Tensor token_factors;  // f, [tokens] float32; undefined: all 1
  Tensor scale;          // [1] float32
  float z_loss = 0;
  bool differentiate = false;
};
void softmax_rows(const SoftmaxRows& op);

// The same in two halves, where the logits are those of a part of the vocabulary, from `first_target` on:
// what each rank has measured of its part, [rows, 3] float32, and with that of all ranks, [ranks, rows, 3] in
// their order, the losses and the gradient of the part.
void measure_rows(const SoftmaxRows& op, int64_t first_target, const Tensor& measured);
void finish_rows(const SoftmaxRows& op, int64_t first_target, const Tensor& all);

// z_loss[0] = scale · Σ f z and loss[0] = scale · Σ f nll + z_loss[0], summed by one block in a fixed order,
// in double. Without z both z and z_loss are undefined.
struct LossSums {
  Tensor nll, z;         // [tokens] float32
  Tensor token_factors;  // f, [tokens] float32; undefined: all 1
  Tensor scale;          // [1] float32
  Tensor loss, z_loss;   // [1] float32
};
void sum_losses(const LossSums& op);

// to[i] = from[places[i]] and to[places[i]] = from[i], rows of one width.
void gather_rows(const Tensor& to, const Tensor& from, const Tensor& places);
void scatter_rows(const Tensor& to, const Tensor& from, const Tensor& places);

}  // namespace temper::backends
