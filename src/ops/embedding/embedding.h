#pragma once
#include <optional>

#include "ops/selection.h"

namespace temper::ops {

// y[t] = table[ids[t] - first], or zeros where the table has no such row: of a vocabulary that ranks divide
// each has the rows from `first` on. The table's gradient sums the rows of equal ids in the order of t:
// deterministic.
struct Embedding {
  static constexpr std::string_view kName = "embedding", kField = "embedding";
  struct Signature {
    DType dtype = DType::kF32;
    int64_t hidden = 0;
  };

  Tensor ids;    // [tokens] int32, each in [0, vocab) where the table is whole: checked at the front door, on
                 // a device before the upload
  Tensor table;  // [rows, hidden]
  int64_t first = 0;

  using Forward = Tensor(const Embedding&);  // y [tokens, hidden]
  using Backward = void(const Embedding&, const Tensor& dy, const GradTarget& table);
  using Compose = Var(Tape&, const Tensor& ids, const Var& table, int64_t first);
};

// `first`: given where ranks divide the vocabulary.
Var embedding(Tape& tape, Bound<Embedding> bound, const Tensor& ids, const Var& table,
              std::optional<int64_t> first = {});

}  // namespace temper::ops
