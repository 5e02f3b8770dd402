#include "tensor/tensor.h"

#include <cstring>

#include "base/error.h"
#include "base/threads/threads.h"
#include "device/transfer.h"
#include "tensor/arena.h"
#include "tensor/device_functions.h"

namespace temper {
namespace {

Shape compact_strides(const Shape& shape) {
  Shape strides = shape;
  int64_t step = 1;
  for (int d = shape.ndim() - 1; d >= 0; --d) {
    strides[d] = step;
    step *= shape[d];
  }
  return strides;
}

int normal_dim(int dim, int ndim) {
  const int normal = dim < 0 ? dim + ndim : dim;
  if (normal < 0 || normal >= ndim) fail("dimension {} of a tensor with {}", dim, ndim);
  return normal;
}

// Copies row by row of the last dimension, converting where the types differ.
template <class To, class From>
void copy_rows(const Tensor& to, const Tensor& from) {
  const int last = to.ndim() - 1;
  const int64_t length = to.ndim() == 0 ? 1 : to.dim(last);
  const int64_t rows = length == 0 ? 0 : to.numel() / length;
  const int64_t to_step = to.ndim() == 0 ? 1 : to.stride(last),
                from_step = to.ndim() == 0 ? 1 : from.stride(last);
  To* const to_data = static_cast<To*>(to.raw());
  const From* const from_data = static_cast<const From*>(from.raw());
  const auto copy_row = [&](int64_t row) {
    int64_t to_at = 0, from_at = 0;
    for (int d = last - 1; d >= 0; --d) {
      const int64_t index = row % to.dim(d);
      row /= to.dim(d);
      to_at += index * to.stride(d);
      from_at += index * from.stride(d);
    }
    To* out = to_data + to_at;
    const From* in = from_data + from_at;
    if constexpr (std::is_same_v<To, From>) {
      if (to_step == 1 && from_step == 1) {
        std::memcpy(out, in, static_cast<size_t>(length) * sizeof(To));
        return;
      }
      for (int64_t i = 0; i < length; ++i) out[i * to_step] = in[i * from_step];
    } else {
      for (int64_t i = 0; i < length; ++i) out[i * to_step] = To(static_cast<float>(in[i * from_step]));
    }
  };
  const int64_t grain = std::max<int64_t>(1, (1 << 16) / std::max<int64_t>(length, 1));
  parallel_ranges(rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) copy_row(row);
  });
}

}  // namespace

Storage::Storage(int64_t bytes, MemoryTag tag, Device device) : bytes_(bytes), tag_(tag), device_(device) {
  const std::shared_ptr<std::byte> block = Arena::take(bytes, tag, device);
  data_ = block ? block.get() : static_cast<std::byte*>(pool(device).allocate(bytes, tag));
  owner_ = block;
}

Storage::Storage(void* data, int64_t bytes, std::shared_ptr<const void> owner)
    : data_(static_cast<std::byte*>(data)), bytes_(bytes), owner_(std::move(owner)) {}

Storage::~Storage() {
  if (owner_ == nullptr) pool(device_).release(data_, tag_);
}

Tensor Tensor::empty(Shape shape, DType dtype, MemoryTag tag, Device device) {
  Tensor tensor;
  tensor.storage_ = std::make_shared<Storage>(checked_multiply(shape.numel(), size_of(dtype)), tag, device);
  tensor.shape_ = shape;
  tensor.strides_ = compact_strides(shape);
  tensor.dtype_ = dtype;
  return tensor;
}

Tensor Tensor::zeros(Shape shape, DType dtype, MemoryTag tag, Device device) {
  Tensor tensor = empty(shape, dtype, tag, device);
  tensor.fill_zero();
  return tensor;
}

Tensor Tensor::borrow(const void* data, Shape shape, DType dtype, std::shared_ptr<const void> owner) {
  invariant(owner != nullptr, "borrowed memory needs an owner");
  Tensor tensor;
  tensor.shape_ = shape;
  tensor.strides_ = compact_strides(shape);
  tensor.dtype_ = dtype;
  tensor.storage_ = std::make_shared<Storage>(const_cast<void*>(data), tensor.bytes(), std::move(owner));
  return tensor;
}

int64_t Tensor::dim(int index) const { return shape_[normal_dim(index, ndim())]; }
int64_t Tensor::stride(int index) const { return strides_[normal_dim(index, ndim())]; }

bool Tensor::is_contiguous_from(int dims) const {
  int64_t step = 1;
  for (int d = ndim() - 1; d >= std::max(ndim() - dims, 0); --d) {
    if (shape_[d] != 1 && strides_[d] != step) return false;
    step *= shape_[d];
  }
  return true;
}

bool Tensor::is_contiguous() const { return is_contiguous_from(ndim()); }

void Tensor::require_host() const {
  if (device().type != DeviceType::kCpu)
    invariant(false, fmt::format("a tensor on {} is read by the CPU", to_string(device())));
}

void Tensor::require_contiguous() const {
  if (!is_contiguous())
    invariant(false, fmt::format("a tensor {} with strides {} must be contiguous here", to_string(shape_),
                                 to_string(strides_)));
}

Tensor Tensor::reshape(Shape shape) const {
  require_contiguous();
  int64_t known = 1;
  int unknown = -1;
  for (int d = 0; d < shape.ndim(); ++d) {
    if (shape[d] == -1 && unknown < 0)
      unknown = d;
    else
      known = checked_multiply(known, shape[d]);
  }
  if (unknown >= 0) shape[unknown] = div_exact(numel(), known);
  if (shape.numel() != numel()) fail("cannot view {} as {}", to_string(shape_), to_string(shape));
  Tensor view = *this;
  view.shape_ = shape;
  view.strides_ = compact_strides(shape);
  return view;
}

Tensor Tensor::narrow(int dim, int64_t start, int64_t length) const {
  dim = normal_dim(dim, ndim());
  if (start < 0 || length < 0 || start + length > shape_[dim])
    fail("rows {} to {} of dimension {} of {}", start, start + length, dim, to_string(shape_));
  Tensor view = *this;
  view.offset_ += start * strides_[dim];
  view.shape_[dim] = length;
  return view;
}

Tensor Tensor::transpose(int a, int b) const {
  a = normal_dim(a, ndim());
  b = normal_dim(b, ndim());
  Tensor view = *this;
  std::swap(view.shape_[a], view.shape_[b]);
  std::swap(view.strides_[a], view.strides_[b]);
  return view;
}

Tensor Tensor::split_dim(int dim, int64_t inner) const {
  dim = normal_dim(dim, ndim());
  Tensor view = *this;
  std::vector<int64_t> shape, strides;
  for (int i = 0; i < ndim(); ++i) {
    shape.push_back(i == dim ? div_exact(shape_[i], inner) : shape_[i]);
    strides.push_back(i == dim ? strides_[i] * inner : strides_[i]);
    if (i != dim) continue;
    shape.push_back(inner);
    strides.push_back(strides_[i]);
  }
  view.shape_ = Shape(shape);
  view.strides_ = Shape(strides);
  return view;
}

Tensor Tensor::bytes_as(int64_t first, Shape shape, DType dtype) const {
  require_contiguous();
  const int64_t at = offset_ + first;
  invariant(dtype_ == DType::kU8 && at % size_of(dtype) == 0 && first >= 0 &&
                first + checked_multiply(shape.numel(), size_of(dtype)) <= numel(),
            "a part of bytes lies within them and is aligned");
  Tensor view = *this;
  view.offset_ = at / size_of(dtype);
  view.shape_ = shape;
  view.strides_ = compact_strides(shape);
  view.dtype_ = dtype;
  return view;
}

Tensor Tensor::contiguous(MemoryTag tag) const { return is_contiguous() ? *this : clone(tag); }

Tensor Tensor::clone(MemoryTag tag) const {
  Tensor copy = empty(shape_, dtype_, tag, device());
  copy.copy_from(*this);
  return copy;
}

void Tensor::copy_from(const Tensor& source) const {
  if (shape_ != source.shape_) fail("cannot copy {} into {}", to_string(source.shape_), to_string(shape_));
  if (device() != source.device()) return copy_across(source);
  if (device().type != DeviceType::kCpu) return tensor_functions(device()).copy(*this, source);
  if (dtype_ == source.dtype_) {
    switch (size_of(dtype_)) {
      case 1:
        return copy_rows<uint8_t, uint8_t>(*this, source);
      case 2:
        return copy_rows<uint16_t, uint16_t>(*this, source);
      case 4:
        return copy_rows<uint32_t, uint32_t>(*this, source);
      default:
        return copy_rows<uint64_t, uint64_t>(*this, source);
    }
  }
  visit_float(dtype_, [&]<class To>() {
    visit_float(source.dtype_, [&]<class From>() { copy_rows<To, From>(*this, source); });
  });
}

// Between devices bytes travel: what is strided or of another dtype is made compact where it is, and spread
// out where it goes.
void Tensor::copy_across(const Tensor& source) const {
  const Tensor compact = source.to(dtype_).contiguous();
  if (is_contiguous()) return transfer(raw(), device(), compact.raw(), source.device(), bytes());
  const Tensor landed = compact.on(device(), MemoryTag::kWorkspace);
  copy_from(landed);
}

Tensor Tensor::on(Device device, MemoryTag tag) const {
  if (device == this->device()) return *this;
  Tensor moved = empty(shape_, dtype_, tag, device);
  moved.copy_from(*this);
  return moved;
}

Tensor Tensor::to(DType dtype, MemoryTag tag) const {
  if (dtype == dtype_) return *this;
  Tensor converted = empty(shape_, dtype, tag, device());
  converted.copy_from(*this);
  return converted;
}

void Tensor::fill_zero() const {
  require_contiguous();
  clear(raw(), device(), bytes());
}

void Tensor::copy_from_host(const void* data, int64_t size) const {
  require_contiguous();
  if (size != bytes()) fail("{} bytes do not fill {} {}", size, to_string(dtype_), to_string(shape_));
  transfer(raw(), device(), data, {}, size);
}

float Tensor::item() const {
  if (numel() != 1) fail("item() of a tensor {}", to_string(shape_));
  const Tensor here = on({});
  return visit_float(dtype_, [&]<class T>() { return static_cast<float>(*here.data<T>()); });
}

void Tensor::fail_dtype(DType asked) const {
  throw Error(fmt::format("a tensor of {} was read as {}", to_string(dtype_), to_string(asked)),
              ErrorKind::kDefect);
}

}  // namespace temper
