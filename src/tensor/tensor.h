#pragma once
#include <memory>
#include <span>
#include <vector>

#include "device/memory.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace temper {

// A block of a pool or of an arena, or borrowed memory kept alive by its owner.
class Storage {
 public:
  Storage(int64_t bytes, MemoryTag tag, Device device);
  Storage(void* data, int64_t bytes, std::shared_ptr<const void> owner);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;
  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  Device device() const { return device_; }

 private:
  std::byte* data_ = nullptr;
  int64_t bytes_;
  MemoryTag tag_ = MemoryTag::kData;
  Device device_;
  std::shared_ptr<const void> owner_;
};

// A view of a storage: dtype, sizes and strides (in elements). Copying a Tensor copies the handle; data is
// shared. A default-constructed Tensor is undefined. No mathematics lives here.
class Tensor {
 public:
  Tensor() = default;

  static Tensor empty(Shape shape, DType dtype, MemoryTag tag = MemoryTag::kActivations, Device device = {});
  static Tensor zeros(Shape shape, DType dtype, MemoryTag tag = MemoryTag::kActivations, Device device = {});
  // Memory that it does not own, for example a mapped file; `owner` is kept as long as the tensor lives.
  static Tensor borrow(const void* data, Shape shape, DType dtype, std::shared_ptr<const void> owner);
  template <class T>
  static Tensor from(std::span<const T> values, Shape shape, MemoryTag tag = MemoryTag::kData) {
    Tensor tensor = empty(shape, dtype_of<T>(), tag);
    tensor.copy_from_host(values.data(), static_cast<int64_t>(values.size_bytes()));
    return tensor;
  }
  template <class T>
  static Tensor from(const std::vector<T>& values, MemoryTag tag = MemoryTag::kData) {
    return from(std::span<const T>(values), {static_cast<int64_t>(values.size())}, tag);
  }

  bool defined() const { return storage_ != nullptr; }
  DType dtype() const { return dtype_; }
  Device device() const { return storage_->device(); }
  const Shape& shape() const { return shape_; }
  const Shape& strides() const { return strides_; }
  int ndim() const { return shape_.ndim(); }
  int64_t dim(int index) const;  // negative counts from the end
  int64_t stride(int index) const;
  int64_t numel() const { return shape_.numel(); }
  int64_t bytes() const { return numel() * size_of(dtype_); }
  bool is_contiguous() const;
  // The last `dims` dimensions are laid out without gaps (outer strides may be anything).
  bool is_contiguous_from(int dims) const;
  bool shares_storage() const { return storage_.use_count() > 1; }

  void* raw() const { return storage_->data() + offset_ * size_of(dtype_); }
  template <class T>
  T* data() const {
    if (dtype_of<T>() != dtype_) fail_dtype(dtype_of<T>());
    return static_cast<T*>(raw());
  }
  template <class T>
  std::span<T> values() const {  // contiguous tensors on the CPU only
    require_host();
    require_contiguous();
    return {data<T>(), static_cast<size_t>(numel())};
  }

  // Views: the same storage. reshape needs a contiguous tensor; one size may be -1.
  Tensor reshape(Shape shape) const;
  Tensor narrow(int dim, int64_t start, int64_t length) const;
  Tensor transpose(int a, int b) const;
  Tensor split_dim(int dim, int64_t inner) const;  // one dimension as two, the second of size `inner`
  Tensor bytes_as(int64_t first, Shape shape, DType dtype) const;  // of compact uint8, from byte `first` on

  Tensor contiguous(MemoryTag tag = MemoryTag::kActivations) const;  // itself, or a compact copy
  Tensor clone(MemoryTag tag = MemoryTag::kActivations) const;       // always a compact copy
  // The same shape, from any device; converts between floating-point dtypes.
  void copy_from(const Tensor& source) const;
  Tensor on(Device device, MemoryTag tag = MemoryTag::kActivations) const;  // itself, or a compact copy there
  Tensor to(DType dtype, MemoryTag tag = MemoryTag::kActivations) const;    // itself, or a converted copy
  void fill_zero() const;                                                   // contiguous tensors only
  void copy_from_host(const void* data, int64_t bytes) const;
  float item() const;  // the one element, as float; waits for a device's work

 private:
  [[noreturn]] void fail_dtype(DType asked) const;
  void require_contiguous() const;
  void require_host() const;
  void copy_across(const Tensor& source) const;

  std::shared_ptr<Storage> storage_;
  int64_t offset_ = 0;  // in elements
  Shape shape_, strides_;
  DType dtype_ = DType::kF32;
};

}  // namespace temper
