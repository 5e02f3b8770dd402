#include "autograd/grad_slot.h"

#include <utility>

#include "base/error.h"
#include "base/threads/threads.h"
#include "tensor/device_functions.h"

namespace temper {

void add_in_place(const Tensor& dst, const Tensor& src) {
  if (dst.shape() != src.shape())
    fail("gradient {} added to {}", to_string(src.shape()), to_string(dst.shape()));
  invariant(dst.is_contiguous(), "gradients accumulate in contiguous tensors");
  const Tensor from = src.contiguous();
  if (dst.device().type != DeviceType::kCpu) return tensor_functions(dst.device()).add(dst, from);
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

void GradSlot::make(const Shape& shape, Device device) {
  grad_ = Tensor::empty(shape, dtype_, MemoryTag::kGradients, device);
}

void GradSlot::add(const Tensor& grad) {
  if (persistent_) {
    if (!grad_.defined()) make(grad.shape(), grad.device());
    if (filled_)
      add_in_place(grad_, grad);
    else
      grad_.copy_from(grad);
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

GradTarget GradSlot::target(const Tensor& value) {
  if (!grad_.defined()) {
    make(value.shape(), value.device());
  } else if (!persistent_) {
    // What arrived from elsewhere may be another's memory, strided, or of the value's dtype.
    grad_ = grad_.to(DType::kF32).contiguous();
    if (grad_.shares_storage()) grad_ = grad_.clone();
  }
  invariant(grad_.shape() == value.shape() && grad_.device() == value.device(),
            "a gradient has its value's shape and device");
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

void GradSlot::keep_in(DType dtype) {
  dtype_ = dtype;
  set_buffer({});
}

void GradSlot::release() {
  grad_ = {};
  filled_ = false;
}

}  // namespace temper
