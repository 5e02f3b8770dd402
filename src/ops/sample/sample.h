#pragma once
#include "ops/sample/sampler.h"
#include "ops/selection.h"

namespace temper::ops {

// Chooses the token that follows each sequence, as sample() does (sampler.h) with everything on the device,
// and makes ready for the step that computes it: writes `ids` and `chosen`, counts `positions` up by one, and
// marks the token as seen. The random number is that of (seed, new position). Where there is no token to
// choose, `chosen` is kNoToken, and `ids` has a token that a later step may compute in vain.
struct Sample {
  static constexpr std::string_view kName = "sample", kField = "sample";
  struct Signature {
    DType dtype = DType::kF32;
    int64_t vocab = 0;
  };

  Tensor logits;   // [sequences, vocab], compact
  Tensor options;  // [sequences, sizeof(SamplingOptions)] bytes: of SamplingOptions
  Tensor
      seen;  // [sequences, vocab] uint8: not 0 for tokens of the sequence; read where a penalty is asked for
  Tensor positions;  // [sequences] int32, of the tokens that the logits come from; moved on
  Tensor ids;        // [sequences] int32, written: what the next step computes
  Tensor chosen;     // [sequences] int32, written: for the host
  Tensor kept;       // [sequences] float32, written: NextToken::kept

  using Forward = void(const Sample&);
  using Backward = void();  // there is none
  using Compose = Forward;
};

void choose_tokens(Bound<Sample> bound, const Sample& op);

}  // namespace temper::ops
