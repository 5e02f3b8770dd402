#pragma once
#include <string>
#include <vector>

#include "weights/weight_table.h"

namespace temper::layers {

// Declares the parameters of a tower: behind its scope here and in files. Every rank has all of them;
// quantizers and adapters leave them alone.
class TowerWeights {
 public:
  TowerWeights(WeightTable& table, std::string scope, std::string source_scope)
      : table_(table), scope_(std::move(scope)), source_scope_(std::move(source_scope)) {}
  // Of a part whose names here and in files begin so behind those of this scope.
  TowerWeights within(const std::string& part) const { return {table_, scope_ + part, source_scope_ + part}; }

  // A vector that does not decay. `zeros`: where a new model starts, of a norm that says how far it is from
  // one.
  void vector(const std::string& name, int64_t size, bool zeros = false);
  // A linear's weight [out, in] and its bias [out]; its rows are those of the modules of files.
  void linear(const std::string& name, int64_t in, const std::vector<WeightSource>& modules);
  // A tensor that decays and is no linear's. `transposed`: files have the transpose of the matrix.
  void tensor(const std::string& name, const Shape& shape, bool transposed = false);

 private:
  void add_vector(const std::string& name, const std::vector<WeightSource>& sources, bool zeros);

  WeightTable& table_;
  std::string scope_, source_scope_;
};

}  // namespace temper::layers
