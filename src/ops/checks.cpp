#include "ops/checks.h"

#include <algorithm>

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

void check_rotary_tables(std::string_view op, const Tensor& positions, int64_t tokens, const Tensor& cos,
                         const Tensor& sin) {
  check_ndim(op, "cos", cos, 2);
  check_shape(op, "sin", sin, cos.shape());
  for (const auto& [label, table] : {std::pair{"cos", &cos}, {"sin", &sin}}) {
    check_dtype(op, label, *table, DType::kF32);
    check_contiguous(op, label, *table);
  }
  check_shape(op, "positions", positions, {tokens});
  check_dtype(op, "positions", positions, DType::kI32);
  for (const int32_t position : visible_ids(positions))
    if (position < 0 || position >= cos.dim(0))
      fail("[{}] position {} is outside the {} positions of the model's context", op, position, cos.dim(0));
}

void check_starts(std::string_view op, std::string_view name, const Tensor& starts, int64_t tokens) {
  check_ndim(op, name, starts, 1);
  check_dtype(op, name, starts, DType::kI32);
  invariant(starts.device().type == DeviceType::kCpu, "documents' starts are on the CPU");
  const auto values = starts.values<int32_t>();
  if (values.size() < 2 || values.front() != 0 || values.back() != tokens ||
      !std::is_sorted(values.begin(), values.end()))
    fail("[{}] {} must rise from 0 to {} without falling", op, name, tokens);
}

std::span<const int32_t> visible_ids(const Tensor& ids) {
  return ids.device().type == DeviceType::kCpu ? ids.values<int32_t>() : std::span<const int32_t>();
}

}  // namespace temper::ops
