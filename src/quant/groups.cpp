#include "quant/groups.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "base/error.h"
#include "base/threads/threads.h"

namespace temper::quant {

Groups groups_of(std::string_view where, const Shape& values, const Shape& amax) {
  const int ndim = values.ndim();
  const bool known = ndim == 2 || ndim == 3;
  if (!known)
    fail("[{}] x is {}, needs [rows, columns] or [experts, rows, columns]", where, to_string(values));
  bool fits = amax.ndim() == ndim;
  for (int d = 0; fits && d < ndim; ++d) fits = amax[d] > 0 && values[d] % amax[d] == 0;
  if (!fits)
    fail("[{}] amax is {}, needs {} dimensions that divide those of x {}", where, to_string(amax), ndim,
         to_string(values));
  const bool experts = ndim == 3;
  return {.experts = experts ? values[0] : 1,
          .rows = values[ndim - 2],
          .columns = values[ndim - 1],
          .expert_groups = experts ? amax[0] : 1,
          .row_groups = amax[ndim - 2],
          .column_groups = amax[ndim - 1]};
}

namespace {

template <Extreme kExtreme, class T>
uint32_t largest_bits(const T* x, int64_t count) {
  uint32_t most = 0;
  for (int64_t i = 0; i < count; ++i)
    most = std::max(most, bits_of_extreme(kExtreme, std::bit_cast<uint32_t>(static_cast<float>(x[i]))));
  return most;
}
template <class T>
uint32_t largest_bits(Extreme extreme, const T* x, int64_t count) {
  return extreme == Extreme::kHigh  ? largest_bits<Extreme::kHigh>(x, count)
         : extreme == Extreme::kLow ? largest_bits<Extreme::kLow>(x, count)
                                    : largest_bits<Extreme::kMagnitude>(x, count);
}

}  // namespace

Tensor amax_of(const Tensor& values, const Shape& shape, Extreme extreme) {
  const Groups groups = groups_of("amax", values.shape(), shape);
  const Tensor amax = Tensor::zeros(shape, DType::kF32);
  const int64_t rows = groups.experts * groups.rows, parts = groups.column_groups, width = groups.width();
  std::vector<uint32_t> found(static_cast<size_t>(rows * parts));  // of each row's parts
  visit_float(values.dtype(), [&]<class T>() {
    const T* const x = values.values<T>().data();
    const int64_t each = std::max<int64_t>(1, (1 << 16) / std::max<int64_t>(groups.columns, 1));
    parallel_ranges(rows, each, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin * parts; i < end * parts; ++i)
        found[static_cast<size_t>(i)] = largest_bits(extreme, x + i * width, width);
    });
  });
  auto* const largest = reinterpret_cast<uint32_t*>(amax.data<float>());
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t part = 0; part < parts; ++part) {
      uint32_t& most = largest[groups.first(row) + part];
      most = std::max(most, extreme_of_bits(extreme, found[static_cast<size_t>(row * parts + part)]));
    }
  return amax;
}

}  // namespace temper::quant
