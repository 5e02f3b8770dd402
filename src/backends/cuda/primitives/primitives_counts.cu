// Counts of chosen experts: a few hundred integers.
#include "backends/cuda/primitives/primitives.h"
#include "backends/gpu/device_code.h"

namespace temper::backends {
namespace {

__global__ void add(int32_t* to, const int32_t* from, int64_t count) {
  for (int64_t i = global_thread(); i < count; i += grid_threads()) to[i] += from[i];
}

__global__ void move(float* biases, const int32_t* counts, float rate, const float* norm, int64_t experts) {
  if (!isfinite(*norm)) return;
  int64_t all = 0;
  for (int64_t e = 0; e < experts; ++e) all += counts[e];
  for (int64_t e = global_thread(); e < experts; e += grid_threads()) {
    const int64_t above = counts[e] * experts - all;
    biases[e] += above == 0 ? 0 : above > 0 ? -rate : rate;
  }
}

void add_counts(const Tensor& counts, const Tensor& more) {
  const int64_t count = counts.numel();
  add<<<blocks_for(count), kThreads, 0, device::stream(counts.device())>>>(counts.data<int32_t>(),
                                                                           more.data<int32_t>(), count);
  device::check_launch("add_counts");
}

void move_biases(const Tensor& biases, const Tensor& counts, float rate, const Tensor& norm) {
  const int64_t experts = biases.numel();
  move<<<blocks_for(experts), kThreads, 0, device::stream(biases.device())>>>(
      biases.data<float>(), counts.data<int32_t>(), rate, norm.data<float>(), experts);
  device::check_launch("move_biases");
}

}  // namespace

void set_counts(primitives::PrimitiveFunctions& functions) {
  functions.add_counts = add_counts;
  functions.move_biases = move_biases;
}

}  // namespace temper::backends
