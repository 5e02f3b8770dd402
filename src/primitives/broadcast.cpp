#include "primitives/broadcast.h"

#include <algorithm>

#include "base/error.h"

namespace temper::primitives {
namespace {

// The steps of a compact tensor along the dimensions of the result; 0 where it is stretched.
std::array<int64_t, Shape::kMaxDims> steps_of(const Shape& shape, const Shape& out) {
  std::array<int64_t, Shape::kMaxDims> steps{};
  int64_t size = 1;
  for (int d = shape.ndim() - 1; d >= 0; --d) {
    steps[static_cast<size_t>(d + out.ndim() - shape.ndim())] = shape[d] == 1 ? 0 : size;
    size *= shape[d];
  }
  return steps;
}

}  // namespace

Shape broadcast_shape(const Shape& a, const Shape& b) {
  const int ndim = std::max(a.ndim(), b.ndim());
  std::array<int64_t, Shape::kMaxDims> sizes{};
  for (int d = 0; d < ndim; ++d) {
    const int64_t x = d < ndim - a.ndim() ? 1 : a[d - (ndim - a.ndim())];
    const int64_t y = d < ndim - b.ndim() ? 1 : b[d - (ndim - b.ndim())];
    if (x != y && x != 1 && y != 1) fail("cannot broadcast {} with {}", to_string(a), to_string(b));
    sizes[static_cast<size_t>(d)] = x == 1 ? y : x;
  }
  return Shape(std::span<const int64_t>(sizes.data(), static_cast<size_t>(ndim)));
}

Broadcast broadcast(const Shape& out, const Shape& a, const Shape& b) {
  const auto a_steps = steps_of(a, out), b_steps = steps_of(b, out);
  Broadcast merged;
  for (int d = 0; d < out.ndim(); ++d) {
    if (out[d] == 1) continue;
    const int64_t a_step = a_steps[static_cast<size_t>(d)], b_step = b_steps[static_cast<size_t>(d)];
    const int before = merged.ndim - 1;
    const bool alike =
        before >= 0 && merged.a_steps[before] == a_step * out[d] && merged.b_steps[before] == b_step * out[d];
    const int at = alike ? before : merged.ndim++;
    merged.sizes[at] = alike ? merged.sizes[at] * out[d] : out[d];
    merged.a_steps[at] = a_step;
    merged.b_steps[at] = b_step;
  }
  return merged;
}

}  // namespace temper::primitives
