#include "autograd/grad_slot.h"

#include <utility>

#include "base/error.h"
#include "base/threads.h"

namespace temper {

void add_in_place(const Tensor& dst, const Tensor& src) {
  if (dst.shape() != src.shape()) fail("gradient {} added to {}", to_string(src.shape()), to_string(dst.shape()));
  invariant(dst.is_contiguous(), "gradients accumulate in contiguous tensors");
  const Tensor from = src.contiguous();
  visit_float(dst.dtype(), [&]<class To>() {
    visit_float(src.dtype(), [&]<class From>() {
      To* out = dst.data<To>();
      const From* in = from.data<From>();
      parallel_ranges(dst.numel(), 1 << 16, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
          out[i] = To(static_cast<float>(out[i]) + static_cast<float>(in[i]));
      });
    });
  });
}

void GradSlot::add(const Tensor& grad) {
  if (persistent_) {
    if (filled_) add_in_place(grad_, grad);
    else grad_.copy_from(grad);
  } else if (!filled_) {
    grad_ = grad;
  } else if (grad_.shares_storage() || !grad_.is_contiguous()) {
    Tensor sum = grad_.clone();
    add_in_place(sum, grad);
    grad_ = sum;
  } else {
    add_in_place(grad_, grad);
  }
  filled_ = true;
}

GradTarget GradSlot::target(const Shape& shape) {
  if (!grad_.defined()) grad_ = Tensor::empty(shape, DType::kF32, MemoryTag::kGradients);
  invariant(grad_.shape() == shape && grad_.dtype() == DType::kF32, "a gradient target is float32 of the value's shape");
  const bool accumulate = std::exchange(filled_, true);
  return {grad_, accumulate};
}

Tensor GradSlot::take() {
  filled_ = false;
  return std::exchange(grad_, Tensor());
}

void GradSlot::set_buffer(Tensor buffer) {
  grad_ = std::move(buffer);
  persistent_ = true;
  filled_ = false;
}

}  // namespace temper
