#pragma once
#include <memory>
#include <vector>

#include "checkpoints/files/safetensors.h"

// One matrix X.weight [rows, columns] in the form of a quantized folder. Each form makes its own
// (QuantizedForm::writer).
namespace temper::checkpoints {

class MatrixWriter {
 public:
  virtual ~MatrixWriter() = default;
  // Codes and scales; what else the folder has of a matrix stays as it is.
  virtual std::vector<TensorInfo> list() const = 0;
  // Those tensors, of values [rows, columns] float32. `amax`: the largest magnitude of all that share a scale
  // of the whole. An Error "[X] …" for values that have no code.
  virtual std::vector<Tensor> encode(const Tensor& values, float amax) const = 0;
  // There is a scale of the whole, which what is fused when it is served shares.
  virtual bool shares_whole() const { return false; }
};

using WritesMatrix = std::unique_ptr<const MatrixWriter>;

}  // namespace temper::checkpoints
