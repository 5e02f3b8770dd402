#pragma once
#include "backends/cuda/delta/conv_documents.h"
#include "backends/gpu/wide_packs.h"

// The inputs that a convolution sees at a token, and the weights that they meet.
namespace temper::backends {

template <class T>
struct ConvArguments {
  const T *x, *weight, *initial, *dy, *dfinal;  // initial, dfinal: or null
  T *out, *windows;  // y or dx; final windows, or gradients of initial ones; or null
  float* partial;    // [runs / kWarps, channels, width], or null
  const ConvDocument* documents;
  const ConvRun* runs;
  int64_t x_stride;
  int channels, width, run_count, document_count;
  bool aligned_weight;

  __device__ int kept() const { return width - 1; }
  __device__ const T* window(const T* all, int document, int place) const {
    return all + (int64_t{document} * kept() + place) * channels;
  }
  // The input of a document at `index`, which may be before its first; null: zeros.
  __device__ const T* input(int document, int index) const {
    ConvDocument d = documents[document];
    if (index < 0 && d.continues >= 0) {
      document = d.continues;
      d = documents[document];
      index += d.tokens;
    }
    if (index >= 0) return x + (int64_t{d.first} + index) * x_stride;
    return initial == nullptr || index < -kept() ? nullptr : window(initial, document, kept() + index);
  }
};

// The derivative of x σ(x).
__device__ inline float silu_slope(float x) {
  const float s = logistic(x);
  return s * (1 + x * (1 - s));
}

// ConvWeights of N channels for kWidth inputs, of which the first are zero where the file has fewer.
template <class T, int N, int kWidth>
struct ConvWeights {
  float values[kWidth][N];

  __device__ ConvWeights(const ConvArguments<T>& a, int channel) {
    const T* const from = a.weight + int64_t{channel} * a.width;
    if (N > 1 && a.width == kWidth && a.aligned_weight) {
      load_packs(from);
      return;
    }
    for (int j = 0; j < kWidth; ++j)
      for (int k = 0; k < N; ++k) {
        const int own = j - (kWidth - a.width);
        values[j][k] = own >= 0 ? widen(from[k * a.width + own]) : 0.f;
      }
  }
  // Of the last kWidth inputs, of which that at `last` came last: they lie in a ring.
  __device__ void convolve(const float (&ring)[kWidth][N], int last, float (&sums)[N]) const {
#pragma unroll
    for (int k = 0; k < N; ++k) {
      sums[k] = 0;
#pragma unroll
      for (int j = 0; j < kWidth; ++j) sums[k] += ring[(last + 1 + j) % kWidth][k] * values[j][k];
    }
  }

 private:
  __device__ void load_packs(const T* from) {
    constexpr int kPack = kLanes<T>;
#pragma unroll
    for (int i = 0; i < N * kWidth / kPack; ++i) {
      float part[kPack];
      widen_all(load_pack<T, kPack>(from + i * kPack), part);
#pragma unroll
      for (int j = 0; j < kPack; ++j) values[(i * kPack + j) % kWidth][(i * kPack + j) / kWidth] = part[j];
    }
  }
};
// The inputs before `index`, to a ring where time 0 is `index`.
template <class T, int N, int kWidth>
__device__ void begin_window(float (&ring)[kWidth][N], const ConvArguments<T>& a, int document, int index,
                             int channel) {
#pragma unroll
  for (int j = 1; j < kWidth; ++j) {
    const T* from = kWidth - j <= a.kept() ? a.input(document, index - kWidth + j) : nullptr;
    load_or_zero<T, N>(ring[j], from == nullptr ? nullptr : from + channel);
  }
}

}  // namespace temper::backends
