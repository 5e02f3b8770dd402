#include "ops/checks.h"

#include "base/error.h"

namespace temper::ops {
namespace {

void check_defined(std::string_view op, std::string_view name, const Tensor& tensor) {
  if (!tensor.defined()) fail("[{}] {} is missing", op, name);
}

}  // namespace

void check_shape(std::string_view op, std::string_view name, const Tensor& tensor, const Shape& expected) {
  check_defined(op, name, tensor);
  if (tensor.shape() != expected)
    fail("[{}] {} is {}, needs {}", op, name, to_string(tensor.shape()), to_string(expected));
}

void check_ndim(std::string_view op, std::string_view name, const Tensor& tensor, int expected) {
  check_defined(op, name, tensor);
  if (tensor.ndim() != expected)
    fail("[{}] {} is {}, needs {} dimensions", op, name, to_string(tensor.shape()), expected);
}

void check_dtype(std::string_view op, std::string_view name, const Tensor& tensor, DType expected) {
  check_defined(op, name, tensor);
  if (tensor.dtype() != expected)
    fail("[{}] {} is {}, needs {}", op, name, to_string(tensor.dtype()), to_string(expected));
}

void check_float(std::string_view op, std::string_view name, const Tensor& tensor) {
  check_defined(op, name, tensor);
  if (!is_float(tensor.dtype()))
    fail("[{}] {} is {}, needs float32, bfloat16 or float16", op, name, to_string(tensor.dtype()));
}

void check_contiguous(std::string_view op, std::string_view name, const Tensor& tensor, int dims) {
  if (!tensor.is_contiguous_from(dims))
    fail("[{}] {} {} has strides {}, needs them without gaps", op, name, to_string(tensor.shape()),
         to_string(tensor.strides()));
}

std::span<const int32_t> visible_ids(const Tensor& ids) {
  return ids.device().type == DeviceType::kCpu ? ids.values<int32_t>() : std::span<const int32_t>();
}

}  // namespace temper::ops
