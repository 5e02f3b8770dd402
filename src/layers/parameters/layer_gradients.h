#pragma once
#include <cstdint>
#include <vector>

#include "tensor/tensor.h"

namespace temper::layers {

// Of gradients that are summed layer by layer the part of each sum that this rank keeps until reset(). Its
// memory (tag gradients) comes when it is first asked for and stays until release().
class LayerGradients {
 public:
  LayerGradients() = default;
  // `sizes`: the elements of each part, by parameter; 0: none.
  LayerGradients(const std::vector<int64_t>& sizes, Device device);

  void keep_in(DType dtype) { dtype_ = dtype; }
  bool has(size_t parameter) const { return parts_[parameter].filled; }
  // Uninitialized before set() says that it is filled.
  Tensor memory(size_t parameter);
  void set(size_t parameter) { parts_[parameter].filled = true; }
  Tensor sum(size_t parameter);  // zeros before it is set
  void reset();
  void release();

 private:
  struct Part {
    int64_t size = 0;
    Tensor sum = {};
    bool filled = false;
  };
  std::vector<Part> parts_;
  Device device_;
  DType dtype_ = DType::kF32;
};

}  // namespace temper::layers
