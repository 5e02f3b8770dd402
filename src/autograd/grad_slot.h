#pragma once
#include <memory>

#include "tensor/tensor.h"

namespace temper {

// Where a backward kernel puts a parameter's gradient.
struct GradTarget {
  Tensor buffer;  // the parameter's shape; float32, or bfloat16 where a run asked for that; undefined:
                  // not computed
  bool accumulate = false;  // add to what is there; otherwise overwrite
  bool wanted() const { return buffer.defined(); }
};

// dst += src, element by element, in float32 arithmetic.
void add_in_place(const Tensor& dst, const Tensor& src);

// The gradient of one value while a tape runs backward.
class GradSlot {
 public:
  // Adds a contribution. The first one is adopted; later ones are added in place unless the memory is shared.
  void add(const Tensor& grad);
  // For kernels that accumulate themselves: the buffer, made on first use, and whether it holds something.
  // A new buffer is float32 unless keep_in() said otherwise, of the value's shape, on its device.
  GradTarget target(const Tensor& value);
  Tensor take();  // the gradient, and forgets it; undefined when nothing arrived
  const Tensor& grad() const { return grad_; }
  bool filled() const { return filled_; }
  // A gradient held in a buffer that stays (a parameter's): reset keeps the memory, drops the value.
  // `keep_in` makes the buffer, of that dtype, when it is first asked for; release() gives such memory back.
  void set_buffer(Tensor buffer);
  void keep_in(DType dtype);
  bool persistent() const { return persistent_; }
  void reset() { filled_ = false; }
  void release();

 private:
  void make(const Shape& shape, Device device);

  Tensor grad_;
  bool filled_ = false;
  bool persistent_ = false;
  DType dtype_ = DType::kF32;  // of a buffer made here
};

}  // namespace temper
