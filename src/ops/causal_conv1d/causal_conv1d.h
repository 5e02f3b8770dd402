#pragma once
#include "ops/documents.h"
#include "ops/selection.h"

namespace temper::ops {

struct Convolved {
  Var y;             // [tokens, channels]
  Var final_window;  // [documents, width - 1, channels]; Var{} unless wanted
};

// Causal convolution of each channel by itself, then SiLU (Qwen3-Next, Mamba). For each document:
//   a[t, c] = Σ_j weight[c, j] · x[t - (width - 1) + j, c]      0 ≤ j < width
//   y[t, c] = a[t, c] / (1 + exp(-a[t, c]))
// In place of what is before a document's first token comes its initial window, that of the document that it
// continues, or zeros. The final window is the last width - 1 inputs, those of the initial window among them
// where a document is shorter. Products, sums and SiLU are float32; y is rounded once. Sums of gradients are
// float32, in a fixed order.
struct CausalConv1d {
  static constexpr std::string_view kName = "causal_conv1d", kField = "causal_conv1d";
  struct Signature {
    DType dtype = DType::kF32;
    int64_t channels = 0, width = 0;
  };

  Tensor x;       // [tokens, channels]; tokens may have any stride
  Tensor weight;  // [channels, width], compact; width is 1 to 16
  Documents documents;
  // [documents, width - 1, channels], x's dtype, compact; of documents that continue another it is not read.
  // Undefined: zeros.
  Tensor initial = {};
  int tiling = 0;  // of the kernel's, which selection took: set by the op

  int64_t tokens() const { return x.dim(0); }
  int64_t channels() const { return x.dim(1); }
  int64_t width() const { return weight.dim(1); }

  struct Output {
    Tensor y;             // [tokens, channels], compact
    Tensor final_window;  // [documents, width - 1, channels], compact; undefined unless wanted
  };
  struct Grads {
    Tensor x;        // [tokens, channels], compact, x's dtype; undefined unless wanted
    Tensor initial;  // of initial's shape and dtype, zero where it is not read; undefined unless wanted
  };
  struct Wanted {
    bool x = false, initial = false;
  };
  using Forward = Output(const CausalConv1d&, bool want_final);
  // a is computed again from x. dy [tokens, channels], compact; dfinal of final_window's shape, compact:
  // undefined where no gradient arrived at it.
  using Backward = Grads(const CausalConv1d&, const Tensor& dy, const Tensor& dfinal, Wanted wanted,
                         const GradTarget& weight);
  using Compose = Convolved(Tape&, const Var& x, const Var& weight, const Var& initial, const CausalConv1d&,
                            bool want_final);
};

// `op` carries the documents. initial may be Var{}.
Convolved causal_conv1d(Tape& tape, Bound<CausalConv1d> bound, const Var& x, const Var& weight,
                        const Var& initial, CausalConv1d op, bool want_final = false);

// One more token for each of several sequences, for inference: the same of one token. The window moves on.
struct CausalConv1dUpdate {
  static constexpr std::string_view kName = "causal_conv1d_update", kField = "causal_conv1d_update";
  using Signature = CausalConv1d::Signature;

  Tensor x;       // [sequences, channels]; sequences may have any stride
  Tensor weight;  // [channels, width], compact
  Tensor window;  // [windows, width - 1, channels], compact, x's dtype; those of the sequences are written
  // [sequences] int32 on x's device: the window of each, which differ, but those of sequences whose results
  // no sequence reads. Undefined: each has its own, in their order.
  Tensor slots = {};

  using Forward = Tensor(const CausalConv1dUpdate&);  // [sequences, channels], compact
  using Backward = void();                            // there is none
  using Compose = Forward;
};

Tensor causal_conv1d_update(Bound<CausalConv1dUpdate> bound, const CausalConv1dUpdate& op);

}  // namespace temper::ops
