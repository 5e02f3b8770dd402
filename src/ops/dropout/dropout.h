#pragma once
#include "ops/selection.h"

namespace temper::ops {

// y[i] = x[i] / (1 - p), or 0 with probability p (Srivastava et al., "Dropout: A Simple Way to Prevent Neural
// Networks from Overfitting", 2014). Element i of x is element n = first + i of the stream; it is dropped
// when word n % 4 of Random(seed, kDropout, step).words(stream · 2^44 + n / 4) is below p · 2^32. The same
// keys give the same bits on every device, in whatever pieces x comes. Where x has columns of wider rows,
// element i is that of its row and column there.
struct Dropout {
  static constexpr std::string_view kName = "dropout", kField = "dropout";
  struct Signature {
    DType dtype = DType::kF32;
  };
  struct Key {
    uint64_t seed = 0, step = 0;
    uint64_t stream = 0;  // below 2^20
    int64_t first = 0;
    int64_t columns = 0;  // of the rows that x has columns of; 0: x has whole rows
  };

  Tensor x;  // compact, of any shape
  float p = 0;
  Key key;

  // Of an element, in words that are compared; and what survivors are multiplied with.
  uint32_t threshold() const { return static_cast<uint32_t>(static_cast<double>(p) * 0x1p32); }
  float factor() const { return 1 / (1 - p); }
  // The width of x's rows where they are pieces of wider ones, else all of x.
  int64_t piece() const { return key.columns == 0 ? x.numel() : x.dim(1); }

  using Forward = Tensor(const Dropout&);
  using Backward = void();  // a gradient takes the same way as x
  using Compose = Var(Tape&, const Var& x, const Dropout& op);
};

Var dropout(Tape& tape, Bound<Dropout> bound, const Var& x, float p, const Dropout::Key& key);

}  // namespace temper::ops
