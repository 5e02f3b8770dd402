// One block a token, whose heads are cut apart and put together in packs of 16 bytes.
#include "backends/floats.h"
#include "backends/gpu/device_code.h"
#include "ops/latent_heads/latent_heads.h"

namespace temper::backends {
namespace {

using ops::LatentHeads;

// In packs.
struct Sizes {
  int heads, nope, rope, value;
};

template <class T, int N>
__global__ void spread(const T* kv, const T* k_rope, int64_t rope_stride, T* k, T* v, Sizes s) {
  const int64_t token = blockIdx.x;
  const int own = s.nope + s.value, width = own + s.rope;
  kv += token * s.heads * own * N;
  k_rope += token * rope_stride;
  k += token * s.heads * (s.nope + s.rope) * N;
  v += token * s.heads * s.value * N;
  for (int i = static_cast<int>(threadIdx.x); i < s.heads * width; i += kThreads) {
    const int head = i / width, at = i % width;
    if (at < own) {
      T* to = at < s.nope ? k + (head * (s.nope + s.rope) + at) * N : v + (head * s.value + at - s.nope) * N;
      store_pack(to, load_pack<T, N>(kv + (head * own + at) * N));
    } else {
      store_pack(k + (head * (s.nope + s.rope) + s.nope + at - own) * N,
                 load_pack<T, N>(k_rope + (at - own) * N));
    }
  }
}

// The part that all heads share sums over them in their order.
template <class T, int N>
__global__ void gather(const T* dk, int64_t k_stride, const T* dv, int64_t v_stride, T* dkv, T* dk_rope, Sizes s) {
  const int64_t token = blockIdx.x;
  const int own = s.nope + s.value, dim = s.nope + s.rope;
  dk += token * k_stride;
  dv += token * v_stride;
  dkv += token * s.heads * own * N;
  dk_rope += token * s.rope * N;
  for (int i = static_cast<int>(threadIdx.x); i < s.heads * own; i += kThreads) {
    const int head = i / own, at = i % own;
    const T* from = at < s.nope ? dk + (head * dim + at) * N : dv + (head * s.value + at - s.nope) * N;
    store_pack(dkv + i * N, load_pack<T, N>(from));
  }
  for (int i = static_cast<int>(threadIdx.x); i < s.rope * N; i += kThreads) {
    float sum = 0;
    for (int head = 0; head < s.heads; ++head) sum += widen(dk[(head * dim + s.nope) * N + i]);
    dk_rope[i] = narrow<T>(sum);
  }
}

bool in_packs(const Tensor& tensor, int64_t lanes) {
  return is_aligned(tensor) && tensor.stride(0) % lanes == 0;
}

// Calls f.template operator()<T, N>(sizes) with the widest packs that parts of heads and tensors allow.
template <class F>
void visit(const LatentHeads& op, int64_t rope, int64_t value, std::initializer_list<const Tensor*> tensors, F&& f) {
  visit_wide_or_brain((*tensors.begin())->dtype(), [&]<class T>() {
    constexpr int kPack = kLanes<T>;
    bool packs = op.nope_dim % kPack == 0 && rope % kPack == 0 && value % kPack == 0;
    for (const Tensor* tensor : tensors) packs = packs && in_packs(*tensor, kPack);
    const auto run = [&]<int N>() {
      f.template operator()<T, N>(Sizes{static_cast<int>(op.heads), static_cast<int>(op.nope_dim / N),
                                        static_cast<int>(rope / N), static_cast<int>(value / N)});
    };
    packs ? run.template operator()<kPack>() : run.template operator()<1>();
  });
}

LatentHeads::Output forward(const LatentHeads& op) {
  const LatentHeads::Output out = ops::outline<LatentHeads>().forward(op);
  const int64_t tokens = op.kv.dim(0);
  if (tokens == 0) return out;
  const auto run = [&]<class T, int N>(const Sizes& sizes) {
    spread<T, N><<<static_cast<unsigned>(tokens), kThreads, 0, device::stream(op.kv.device())>>>(
        static_cast<const T*>(op.kv.raw()), static_cast<const T*>(op.k_rope.raw()), op.k_rope.stride(0),
        static_cast<T*>(out.k.raw()), static_cast<T*>(out.v.raw()), sizes);
  };
  visit(op, op.rope_dim(), op.value_dim(), {&op.kv, &op.k_rope, &out.k, &out.v}, run);
  device::check_launch("latent_heads");
  return out;
}

LatentHeads::Grads backward(const LatentHeads& op, const Tensor& dk, const Tensor& dv) {
  const LatentHeads::Grads grads = ops::outline<LatentHeads>().backward(op, dk, dv);
  const int64_t tokens = dk.dim(0);
  if (tokens == 0) return grads;
  const auto run = [&]<class T, int N>(const Sizes& sizes) {
    gather<T, N><<<static_cast<unsigned>(tokens), kThreads, 0, device::stream(dk.device())>>>(
        static_cast<const T*>(dk.raw()), dk.stride(0), static_cast<const T*>(dv.raw()), dv.stride(0),
        static_cast<T*>(grads.kv.raw()), static_cast<T*>(grads.k_rope.raw()), sizes);
  };
  visit(op, grads.k_rope.dim(1), dv.dim(2), {&dk, &dv, &grads.kv, &grads.k_rope}, run);
  device::check_launch("latent_heads backward");
  return grads;
}

}  // namespace

void register_cuda_latent_heads() {
  ops::kernels<LatentHeads>().add("cuda", {.hardware = hardware::kGpu,
                                           .accepts = refuse_float16<LatentHeads::Signature>,
                                           .forward = forward,
                                           .backward = backward,
                                           .batch_invariant = true});
}

}  // namespace temper::backends
