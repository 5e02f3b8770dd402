#pragma once
#include <string>

#include "towers/tower_mlp.h"
#include "towers/tower_norm.h"

namespace temper::towers {

// Makes one row of the text of a block of patches, whose rows lie side by side: a norm, of the patches or of
// the joined rows, two linears and GELU between them.
struct MergerConfig {
  std::string norm;  // module, here and in files
  NormConfig of_norm = {};
  bool joins_first = false;  // the norm reads joined rows
  int64_t width = 0;         // of a patch
  MlpConfig mlp = {};        // of joined rows

  int64_t normed() const { return joins_first ? mlp.in : width; }
};

class Merger {
 public:
  Merger(const layers::Binding& binding, const MergerConfig& config);
  static void declare(layers::TowerWeights& weights, const MergerConfig& config);
  static void name_ops(const layers::TowerOps& ops, const MergerConfig& config);

  Var operator()(Tape& tape, const layers::Stream& stream) const;  // [patches, width] to [tokens, text width]

 private:
  bool joins_first_;
  int64_t joined_;
  TowerNorm norm_;
  TowerMlp mlp_;
};

}  // namespace temper::towers
