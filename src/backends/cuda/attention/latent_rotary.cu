// One block a token: what is not rotated is copied in packs of 16 bytes, then a thread takes a pair of entries.
#include "backends/floats.h"
#include "backends/gpu/device_code.h"
#include "ops/latent_heads/latent_rotary.h"

namespace temper::backends {
namespace {

using ops::LatentRotary;

// Rows of tokens [heads · (nope + 2 half)] and [2 half], strides in elements.
template <class T>
struct Rows {
  T *q, *k_rope;
  int64_t q_stride, k_stride;
};

struct Sizes {
  int heads, nope, half;
  bool interleaved;
};

// Where pair i of a rotated part lies in it.
struct Place {
  int a, b;
};
__device__ inline Place place_of(int i, const Sizes& sizes, bool neighbours) {
  return neighbours ? Place{2 * i, 2 * i + 1} : Place{i, i + sizes.half};
}

template <class T, int N, bool kBack>
__global__ void rotate_tokens(Rows<const T> from, Rows<T> to, const int* positions, const float* cos,
                              const float* sin, Sizes sizes) {
  const int64_t token = blockIdx.x;
  const int dim = sizes.nope + 2 * sizes.half, packs = sizes.nope / N;
  const T* x = from.q + token * from.q_stride;
  T* y = to.q + token * to.q_stride;
  for (int i = static_cast<int>(threadIdx.x); i < sizes.heads * packs; i += kThreads) {
    const int at = i / packs * dim + i % packs * N;
    store_pack(y + at, load_pack<T, N>(x + at));
  }
  const int64_t angles = int64_t{positions[token]} * sizes.half;
  // Behind the heads, the part that all share.
  for (int i = static_cast<int>(threadIdx.x); i < (sizes.heads + 1) * sizes.half; i += kThreads) {
    const int head = i / sizes.half, pair = i % sizes.half;
    const bool shared = head == sizes.heads;
    const T* in = shared ? from.k_rope + token * from.k_stride : x + head * dim + sizes.nope;
    T* out = shared ? to.k_rope + token * to.k_stride : y + head * dim + sizes.nope;
    const Place read = place_of(pair, sizes, sizes.interleaved && !kBack),
                written = place_of(pair, sizes, sizes.interleaved && kBack);
    const float c = cos[angles + pair], s = kBack ? -sin[angles + pair] : sin[angles + pair];
    const float a = widen(in[read.a]), b = widen(in[read.b]);
    out[written.a] = narrow<T>(a * c - b * s);
    out[written.b] = narrow<T>(b * c + a * s);
  }
}

// Of compact rows, or of tensors whose tokens have a stride.
template <class T, class Element>
Rows<Element> rows_of(const Tensor& q, const Tensor& k_rope) {
  return {static_cast<Element*>(q.raw()), static_cast<Element*>(k_rope.raw()), q.stride(0), k_rope.stride(0)};
}

bool in_packs(const Tensor& tensor, int64_t lanes) {
  return is_aligned(tensor) && tensor.stride(0) % lanes == 0;
}

template <bool kBack>
void launch(const LatentRotary& op, const LatentRotary::Output& from, const LatentRotary::Output& to) {
  const Device device = to.q.device();
  const int64_t tokens = to.q.dim(0), rope = to.k_rope.dim(1), dim = to.q.numel() / std::max<int64_t>(1, tokens) / op.heads;
  if (tokens == 0) return;
  const Tensor positions = op.positions.on(device);
  const Sizes sizes{static_cast<int>(op.heads), static_cast<int>(dim - rope), static_cast<int>(rope / 2),
                    op.interleaved};
  visit_wide_or_brain(to.q.dtype(), [&]<class T>() {
    const auto run = [&]<int N>() {
      rotate_tokens<T, N, kBack><<<static_cast<unsigned>(tokens), kThreads, 0, device::stream(device)>>>(
          rows_of<T, const T>(from.q, from.k_rope), rows_of<T, T>(to.q, to.k_rope), positions.data<int32_t>(),
          op.cos.data<float>(), op.sin.data<float>(), sizes);
    };
    constexpr int kPack = kLanes<T>;
    const bool packs = sizes.nope % kPack == 0 && rope % kPack == 0 && in_packs(from.q, kPack) && in_packs(to.q, kPack);
    packs ? run.template operator()<kPack>() : run.template operator()<1>();
  });
  device::check_launch("latent_rotary");
}

LatentRotary::Output forward(const LatentRotary& op) {
  const LatentRotary::Output out = ops::outline<LatentRotary>().forward(op);
  launch<false>(op, {op.q, op.k_rope}, out);
  return out;
}

LatentRotary::Grads backward(const LatentRotary& op, const Tensor& dq, const Tensor& dk_rope) {
  const LatentRotary::Grads grads = ops::outline<LatentRotary>().backward(op, dq, dk_rope);
  launch<true>(op, {dq, dk_rope}, {grads.q, grads.k_rope});
  return grads;
}

}  // namespace

void register_cuda_latent_rotary() {
  ops::kernels<LatentRotary>().add("cuda", {.hardware = hardware::kGpu,
                                            .accepts = refuse_float16<LatentRotary::Signature>,
                                            .forward = forward,
                                            .backward = backward,
                                            .batch_invariant = true});
}

}  // namespace temper::backends
