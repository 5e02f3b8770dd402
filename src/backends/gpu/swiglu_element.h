#pragma once
#include "backends/gpu/device_code.h"
#include "ops/swiglu/swiglu.h"

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

// Both activations by the names that kernels take as a template's argument.
struct Silu {
  __device__ static float forward(float gate, float up) { return swiglu(gate, up); }
  __device__ static SwigluBackward backward(float gate, float up, float dy) {
    return swiglu_backward(gate, up, dy);
  }
};

// With s = sigmoid(inner(gate)): dgate = dy · up · (s + gate s (1 - s) · slope of inner), dup = dy · gate ·
// s.
struct GeluTanh {
  __device__ static float inner(float gate) {
    return ops::kGeluScale * (gate + ops::kGeluCubic * gate * gate * gate);
  }
  __device__ static float forward(float gate, float up) { return gate * sigmoid(inner(gate)) * up; }
  __device__ static SwigluBackward backward(float gate, float up, float dy) {
    const float s = sigmoid(inner(gate)), slope = ops::kGeluScale * (1 + 3 * ops::kGeluCubic * gate * gate);
    return {dy * up * (s + gate * s * (1 - s) * slope), dy * gate * s, gate * s * up};
  }
};

}  // namespace temper::backends
