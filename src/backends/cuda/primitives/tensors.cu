// Copies between strides and dtypes, and sums in place.
#include <algorithm>

#include "backends/cuda/sampling/philox.h"
#include "backends/gpu/device_code.h"
#include "tensor/device_functions.h"

namespace temper::backends {
namespace {

// A tensor of any strides, its dimensions padded with ones in front.
struct View {
  int64_t sizes[Shape::kMaxDims];
  int64_t to_strides[Shape::kMaxDims];
  int64_t from_strides[Shape::kMaxDims];
};

View view_of(const Tensor& to, const Tensor& from) {
  View view;
  const int missing = Shape::kMaxDims - to.ndim();
  for (int d = 0; d < Shape::kMaxDims; ++d) {
    view.sizes[d] = d < missing ? 1 : to.dim(d - missing);
    view.to_strides[d] = d < missing ? 0 : to.stride(d - missing);
    view.from_strides[d] = d < missing ? 0 : from.stride(d - missing);
  }
  return view;
}

template <class To, class From>
__global__ void copy_strided(To* to, const From* from, View view, int64_t count) {
  for (int64_t i = global_thread(); i < count; i += grid_threads()) {
    int64_t rest = i, to_at = 0, from_at = 0;
    for (int d = Shape::kMaxDims - 1; d >= 0; --d) {
      const int64_t index = rest % view.sizes[d];
      rest /= view.sizes[d];
      to_at += index * view.to_strides[d];
      from_at += index * view.from_strides[d];
    }
    if constexpr (std::is_same_v<To, From>)
      to[to_at] = from[from_at];
    else
      to[to_at] = narrow<To>(widen(from[from_at]));
  }
}

template <class To, class From>
__global__ void copy_compact(To* to, const From* from, int64_t count) {
  for (int64_t i = global_thread(); i < count; i += grid_threads()) to[i] = narrow<To>(widen(from[i]));
}

template <class To, class From>
__global__ void add_compact(To* to, const From* from, int64_t count) {
  for (int64_t i = global_thread(); i < count; i += grid_threads())
    to[i] = narrow<To>(widen(to[i]) + widen(from[i]));
}

template <class To, class From>
void launch_copy(const Tensor& to, const Tensor& from) {
  const cudaStream_t stream = device::stream(to.device());
  const int64_t count = to.numel();
  auto* out = static_cast<To*>(to.raw());
  const auto* in = static_cast<const From*>(from.raw());
  if constexpr (!std::is_same_v<To, From>)
    if (to.is_contiguous() && from.is_contiguous()) {
      copy_compact<<<blocks_for(count), kThreads, 0, stream>>>(out, in, count);
      device::check_launch("copy");
      return;
    }
  copy_strided<<<blocks_for(count), kThreads, 0, stream>>>(out, in, view_of(to, from), count);
  device::check_launch("copy");
}

// Rows of the last dimension that are compact on both sides, and at most one dimension above them.
bool copy_rows(const Tensor& to, const Tensor& from) {
  if (to.is_contiguous() && from.is_contiguous()) {
    const cudaStream_t stream = device::stream(to.device());
    device::check(cudaMemcpyAsync(to.raw(), from.raw(), static_cast<size_t>(to.bytes()),
                                  cudaMemcpyDeviceToDevice, stream),
                  "cudaMemcpyAsync");
    return true;
  }
  if (to.ndim() < 2 || !to.is_contiguous_from(to.ndim() - 1) || !from.is_contiguous_from(to.ndim() - 1))
    return false;
  const int64_t size = size_of(to.dtype()), row = to.numel() / to.dim(0) * size;
  const int64_t to_pitch = to.stride(0) * size, from_pitch = from.stride(0) * size;
  if (to_pitch < row || from_pitch < row) return false;
  device::check(cudaMemcpy2DAsync(to.raw(), static_cast<size_t>(to_pitch), from.raw(),
                                  static_cast<size_t>(from_pitch), static_cast<size_t>(row),
                                  static_cast<size_t>(to.dim(0)), cudaMemcpyDeviceToDevice,
                                  device::stream(to.device())),
                "cudaMemcpy2DAsync");
  return true;
}

void copy(const Tensor& to, const Tensor& from) {
  if (to.numel() == 0) return;
  if (to.dtype() == from.dtype()) {
    if (copy_rows(to, from)) return;
    switch (size_of(to.dtype())) {
      case 1:
        return launch_copy<uint8_t, uint8_t>(to, from);
      case 2:
        return launch_copy<uint16_t, uint16_t>(to, from);
      case 4:
        return launch_copy<uint32_t, uint32_t>(to, from);
      default:
        return launch_copy<uint64_t, uint64_t>(to, from);
    }
  }
  visit_device_float(to.dtype(), [&]<class To>() {
    visit_device_float(from.dtype(), [&]<class From>() { launch_copy<To, From>(to, from); });
  });
}

void add(const Tensor& dst, const Tensor& src) {
  const int64_t count = dst.numel();
  if (count == 0) return;
  visit_device_float(dst.dtype(), [&]<class To>() {
    visit_device_float(src.dtype(), [&]<class From>() {
      add_compact<<<blocks_for(count), kThreads, 0, device::stream(dst.device())>>>(
          static_cast<To*>(dst.raw()), static_cast<const From*>(src.raw()), count);
      device::check_launch("add");
    });
  });
}

template <class T>
__global__ void fill_compact(T* to, float value, int64_t count) {
  for (int64_t i = global_thread(); i < count; i += grid_threads()) to[i] = narrow<T>(value);
}

// As Random::normal, in double.
template <class T>
__global__ void fill_normals(T* to, int64_t count, uint64_t seed, uint64_t first, double deviation) {
  constexpr double kTwoPi = 6.283185307179586;
  for (int64_t i = global_thread(); i < count; i += grid_threads()) {
    const uint4 w = philox_words(seed, static_cast<uint32_t>(RandomPurpose::kInitialization), 0,
                                 first + static_cast<uint64_t>(i));
    const double u = (static_cast<double>(uint64_t{w.x} << 32 | w.y) + 1) * 0x1p-64;
    const double v = static_cast<double>(uint64_t{w.z} << 32 | w.w) * 0x1p-64;
    to[i] = narrow<T>(static_cast<float>(deviation * (sqrt(-2 * log(u)) * cos(kTwoPi * v))));
  }
}

void fill(const Tensor& tensor, float value) {
  if (tensor.numel() == 0) return;
  visit_device_float(tensor.dtype(), [&]<class T>() {
    fill_compact<<<blocks_for(tensor.numel()), kThreads, 0, device::stream(tensor.device())>>>(
        static_cast<T*>(tensor.raw()), value, tensor.numel());
  });
  device::check_launch("fill");
}

void fill_normal(const Tensor& tensor, uint64_t seed, uint64_t first, double deviation) {
  if (tensor.numel() == 0) return;
  visit_device_float(tensor.dtype(), [&]<class T>() {
    fill_normals<<<blocks_for(tensor.numel()), kThreads, 0, device::stream(tensor.device())>>>(
        static_cast<T*>(tensor.raw()), tensor.numel(), seed, first, deviation);
  });
  device::check_launch("fill_normal");
}

}  // namespace

void register_cuda_tensors() { register_tensor_functions(DeviceType::kCuda, {copy, add, fill, fill_normal}); }

}  // namespace temper::backends
