#include "tensor/shape.h"

#include <algorithm>

#include "base/error.h"

namespace temper {

Shape::Shape(std::span<const int64_t> sizes) : ndim_(static_cast<int>(sizes.size())) {
  if (sizes.size() > kMaxDims) fail("a tensor has {} dimensions; at most {} are supported", sizes.size(), kMaxDims);
  std::copy(sizes.begin(), sizes.end(), sizes_.begin());
}

int64_t Shape::numel() const {
  int64_t count = 1;
  for (const int64_t size : *this) count = checked_multiply(count, size);
  return count;
}

bool Shape::operator==(const Shape& other) const { return std::equal(begin(), end(), other.begin(), other.end()); }

std::string to_string(const Shape& shape) {
  std::string out = "[";
  for (const int64_t size : shape) out += (out.size() > 1 ? ", " : "") + std::to_string(size);
  return out + "]";
}

int64_t checked_multiply(int64_t a, int64_t b) {
  int64_t product = 0;
  if (a < 0 || b < 0 || __builtin_mul_overflow(a, b, &product)) fail("size {} x {} is out of range", a, b);
  return product;
}

int64_t div_exact(int64_t a, int64_t b) {
  if (b <= 0 || a % b != 0) fail("{} does not divide {} evenly", b, a);
  return a / b;
}

}  // namespace temper
