#include "checkpoints/files/finite.h"

#include <fmt/ranges.h>

#include <atomic>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "base/threads/threads.h"

namespace temper::checkpoints {
namespace {

// An exponent of ones alone says NaN or infinite: one more in it is carried into the sign's place. Of
// integers, so that whole vectors are tested as fast as memory is read.
template <class T>
struct FloatBits;
template <>
struct FloatBits<float> {
  using Bits = uint32_t;
  static constexpr Bits kOne = 1u << 23;
};
template <>
struct FloatBits<BFloat16> {
  using Bits = uint16_t;
  static constexpr Bits kOne = 1u << 7;
};
template <>
struct FloatBits<Float16> {
  using Bits = uint16_t;
  static constexpr Bits kOne = 1u << 10;
};

template <class T>
bool all_finite(const void* values, int64_t count) {
  using Bits = typename FloatBits<T>::Bits;
  constexpr Bits kSign = Bits{1} << (8 * sizeof(Bits) - 1);
  const Bits* bits = static_cast<const Bits*>(values);
  Bits found = 0;
  for (int64_t i = 0; i < count; ++i)
    found = static_cast<Bits>(found | ((bits[i] & ~kSign) + FloatBits<T>::kOne));
  return (found & kSign) == 0;
}

template <class T>
int64_t first_not_finite(const T* values, int64_t count) {
  std::atomic<int64_t> first = count;
  parallel_ranges(count, 1 << 16, [&](int64_t begin, int64_t end) {
    if (all_finite<T>(values + begin, end - begin)) return;
    while (all_finite<T>(values + begin, 1)) ++begin;
    for (int64_t at = first; begin < at && !first.compare_exchange_weak(at, begin);) {
    }
  });
  return first;
}

}  // namespace

void check_finite(const Tensor& rows, int64_t first_row, std::string_view name, const std::string& folder,
                  std::string_view advice) {
  visit_float(rows.dtype(), [&]<class T>() {
    const auto values = rows.values<T>();
    int64_t at = first_not_finite(values.data(), rows.numel());
    if (at == rows.numel()) return;
    const auto value = static_cast<float>(values[static_cast<size_t>(at)]);
    std::vector<int64_t> element(static_cast<size_t>(rows.ndim()));
    for (int d = rows.ndim() - 1; d >= 0; --d) {
      element[static_cast<size_t>(d)] = at % rows.dim(d);
      at /= rows.dim(d);
    }
    if (!element.empty()) element.front() += first_row;
    // A NaN's sign says nothing.
    fail("[{}] tensor '{}': found {} at [{}], expected finite numbers; {}", folder, name,
         std::isnan(value) ? "nan" : fmt::format("{}", value), fmt::join(element, ", "), advice);
  });
}

}  // namespace temper::checkpoints
