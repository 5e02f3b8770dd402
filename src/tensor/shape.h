#pragma once
#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace temper {

// Up to six sizes (or strides), held in place.
class Shape {
 public:
  static constexpr int kMaxDims = 6;
  Shape() = default;
  Shape(std::initializer_list<int64_t> sizes) : Shape(std::span<const int64_t>(sizes.begin(), sizes.size())) {}
  explicit Shape(std::span<const int64_t> sizes);

  int ndim() const { return ndim_; }
  int64_t operator[](int dim) const { return sizes_[static_cast<size_t>(dim)]; }
  int64_t& operator[](int dim) { return sizes_[static_cast<size_t>(dim)]; }
  const int64_t* begin() const { return sizes_.data(); }
  const int64_t* end() const { return sizes_.data() + ndim_; }
  int64_t numel() const;
  bool operator==(const Shape& other) const;

 private:
  std::array<int64_t, kMaxDims> sizes_{};
  int ndim_ = 0;
};

std::string to_string(const Shape& shape);        // "[2, 512]"
int64_t checked_multiply(int64_t a, int64_t b);   // throws on overflow and on negative factors
int64_t div_exact(int64_t a, int64_t b);          // throws when b does not divide a

}  // namespace temper
