#pragma once
#include "backends/gpu/device_code.h"

// swiglu of one element and its gradients (ops/swiglu), for every GPU kernel that computes them: the bits of
// one are the bits of all.
namespace temper::backends {

// Within a few units of the last place.
__device__ inline float sigmoid(float z) {
  float inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(1 + power_of_2(-kLog2E * z)));
  return inverse;
}
__device__ inline float swiglu(float gate, float up) { return gate * sigmoid(gate) * up; }

struct SwigluBackward {
  float dgate, dup;
  float y;  // once more
};
// With s = sigmoid(gate): dgate = dy · up · s (1 + gate (1 - s)), dup = dy · gate · s.
__device__ inline SwigluBackward swiglu_backward(float gate, float up, float dy) {
  const float s = sigmoid(gate);
  return {dy * up * s * (1 + gate * (1 - s)), dy * gate * s, gate * s * up};
}

}  // namespace temper::backends
