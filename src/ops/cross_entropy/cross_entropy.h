#pragma once
#include "collectives/group.h"
#include "ops/selection.h"
#include "tensor/host_inputs.h"

namespace temper::ops {

// The ranks that divide a vocabulary: each has consecutive rows of the head's weight. All of them ask for the
// same losses at the same time, and get them.
struct VocabularyRanks {
  collectives::Group* group = nullptr;  // null: the weight is whole
  int64_t first = 0;                    // of the rows that are here, in the whole
};

// loss = scale · Σ_t f[t] (-log softmax(logits[t])[targets[t]] + z_loss · (log Σ exp(logits[t]))²), logits[t]
// = weight · hidden[t], over the tokens whose target is not kIgnore; f is 1 unless given. The second term
// keeps the normalizer near one (Chowdhery et al., "PaLM: Scaling Language Modeling with Pathways", 2022,
// section 5: z_loss = 1e-4). The head's product is part of the op, so that a kernel need never hold [tokens,
// vocab] logits. `scale` is one over the number of target tokens of the global batch, known before the
// forward pass. Softmax is float32.
//
// Forward also forms the gradients (logits exist only there): hidden's is kept, the weight's is added to its
// target at once. The loss must therefore be the root of the tape: backward takes seed 1 only.
struct CrossEntropy {
  static constexpr std::string_view kName = "cross_entropy", kField = "cross_entropy_loss";
  static constexpr int32_t kIgnore = -100;
  struct Signature {
    DType dtype = DType::kF32;
    int64_t hidden = 0, vocab = 0;
  };

  Tensor hidden;   // [tokens, hidden]
  Tensor weight;   // [vocab, hidden]
  Tensor targets;  // [tokens] int32 on the CPU: in [0, vocab) or kIgnore; checked at the front door
  struct Factors {
    HostValue<float> scale = 1.f;
    float z_loss = 0;
    Tensor tokens = {};  // f, [tokens] float32 on the CPU, of any sign; undefined: all 1
  };
  Factors factors;
  // Where ranks divide the vocabulary, `weight` is a part of it and targets are of the whole. Ranks exchange
  // three numbers a token, whose logits are nowhere together; the gradient of hidden is a part of a sum.
  VocabularyRanks ranks = {};

  struct Output {
    Tensor loss;     // [1] float32
    Tensor nll;      // [tokens] float32: -log p of each target, 0 where ignored
    Tensor z;        // [1] float32: what z_loss adds to the loss; undefined when it is 0
    Tensor dhidden;  // [tokens, hidden], hidden's dtype; undefined unless wanted
  };
  using Forward = Output(const CrossEntropy&, bool want_dhidden, const GradTarget& weight);
  using Backward = void();  // forward has done it
  struct Vars {
    Var loss;       // [1]
    Tensor nll, z;  // [tokens] and [1]
  };
  using Compose = Vars(Tape&, const Var& hidden, const Var& weight, const Tensor& targets,
                       const Factors& factors, const VocabularyRanks& ranks);
};

CrossEntropy::Vars cross_entropy(Tape& tape, Bound<CrossEntropy> bound, const Var& hidden, const Var& weight,
                                 const Tensor& targets, const CrossEntropy::Factors& factors,
                                 const VocabularyRanks& ranks = {});

}  // namespace temper::ops
