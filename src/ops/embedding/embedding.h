#pragma once
#include "ops/selection.h"

namespace temper::ops {

// y[t] = table[ids[t]]. The table's gradient sums the rows of equal ids in the order of t: deterministic.
struct Embedding {
  static constexpr std::string_view kName = "embedding", kField = "embedding";
  struct Signature {
    DType dtype = DType::kF32;
    int64_t hidden = 0;
  };

  Tensor ids;    // [tokens] int32, each in [0, vocab): checked at the front door, on a device before the
                 // upload
  Tensor table;  // [vocab, hidden]

  using Forward = Tensor(const Embedding&);  // y [tokens, hidden]
  using Backward = void(const Embedding&, const Tensor& dy, const GradTarget& table);
  using Compose = Var(Tape&, const Tensor& ids, const Var& table);
};

Var embedding(Tape& tape, Bound<Embedding> bound, const Tensor& ids, const Var& table);

}  // namespace temper::ops
