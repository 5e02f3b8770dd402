#pragma once
#include "backends/onednn/tiles/blocks.h"
#include "ops/moe_experts/moe_experts.h"

namespace temper::backends {

// Some columns of gate|up rows: both halves, `up` elements apart.
struct GateUp {
  Block rows;
  int64_t up = 0;
  ops::ExpertsGate gate = {};
};

// y = weights[row] · silu(gate) * up, or as the gate says, for rows x size elements, in float32, rounded
// once.
void gate_rows(const GateUp& in, const float* weights, const Block& y, int64_t rows, int64_t size);

// Of da, the gradient of y before the weight (float32 rows): d = that of gate|up, y as forward, and
// dots[row * stride] = Σ da · y / weight over these columns.
struct GateGradients {
  const float* da = nullptr;
  int64_t da_stride = 0;
  GateUp d;
  Block y;
  float* dots = nullptr;
  int64_t dots_stride = 0;
};
void gate_rows_backward(const GateUp& in, const float* weights, const GateGradients& to, int64_t rows,
                        int64_t size);

}  // namespace temper::backends
