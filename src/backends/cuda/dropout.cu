#include "backends/cuda/sampling/philox.h"
#include "backends/gpu/device_code.h"
#include "ops/dropout/dropout.h"

namespace temper::backends {
namespace {

using ops::Dropout;

// One thread makes the four decisions of one counter.
template <class T>
__global__ void drop(const T* x, T* y, int64_t count, Dropout::Key key, uint32_t threshold, float factor) {
  const int64_t skip = key.first % 4, quads = (skip + count + 3) / 4;
  for (int64_t quad = global_thread(); quad < quads; quad += grid_threads()) {
    const uint4 words =
        philox_words(key.seed, static_cast<uint32_t>(RandomPurpose::kDropout), key.step,
                     (key.stream << 44) + static_cast<uint64_t>(key.first / 4 + quad));
    const uint32_t word[4] = {words.x, words.y, words.z, words.w};
    for (int k = 0; k < 4; ++k) {
      const int64_t i = quad * 4 + k - skip;
      if (i >= 0 && i < count) y[i] = narrow<T>(word[k] < threshold ? 0.f : widen(x[i]) * factor);
    }
  }
}

// Of columns of wider rows: one thread an element.
template <class T>
__global__ void drop_columns(const T* x, T* y, int64_t count, int64_t width, Dropout::Key key, uint32_t threshold,
                             float factor) {
  for (int64_t i = global_thread(); i < count; i += grid_threads()) {
    const int64_t n = key.first + i / width * key.columns + i % width;
    const uint4 words = philox_words(key.seed, static_cast<uint32_t>(RandomPurpose::kDropout), key.step,
                                     (key.stream << 44) + static_cast<uint64_t>(n / 4));
    const uint32_t word[4] = {words.x, words.y, words.z, words.w};
    y[i] = narrow<T>(word[n % 4] < threshold ? 0.f : widen(x[i]) * factor);
  }
}

Tensor forward(const Dropout& op) {
  const Tensor y = Tensor::empty(op.x.shape(), op.x.dtype(), MemoryTag::kActivations, op.x.device());
  if (y.numel() == 0) return y;
  visit_device_float(y.dtype(), [&]<class T>() {
    if (op.key.columns != 0)
      drop_columns<T><<<blocks_for(y.numel(), 1), kThreads, 0, device::stream(y.device())>>>(
          static_cast<const T*>(op.x.raw()), static_cast<T*>(y.raw()), y.numel(), op.piece(), op.key, op.threshold(),
          op.factor());
    else
      drop<T><<<blocks_for(y.numel(), 4), kThreads, 0, device::stream(y.device())>>>(
        static_cast<const T*>(op.x.raw()), static_cast<T*>(y.raw()), y.numel(), op.key, op.threshold(), op.factor());
  });
  device::check_launch("dropout");
  return y;
}

}  // namespace

void register_cuda_dropout() {
  ops::kernels<Dropout>().add(
      "cuda", {.hardware = hardware::kGpu, .accepts = ops::accept_all<Dropout::Signature>, .forward = forward});
}

}  // namespace temper::backends
