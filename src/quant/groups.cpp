#include "quant/groups.h"

#include <bit>

#include "base/error.h"
#include "base/threads.h"

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

Tensor amax_of(const Tensor& values, const Shape& shape) {
  const Groups groups = groups_of("amax", values.shape(), shape);
  const Tensor amax = Tensor::zeros(shape, DType::kF32);
  // As bits, in whose order NaN comes last.
  auto* const largest = reinterpret_cast<uint32_t*>(amax.data<float>());
  visit_float(values.dtype(), [&]<class T>() {
    const T* x = values.values<T>().data();
    for (int64_t row = 0; row < groups.experts * groups.rows; ++row)
      for (int64_t group = 0; group < groups.column_groups; ++group) {
        uint32_t& most = largest[groups.first(row) + group];
        for (int64_t i = 0; i < groups.width(); ++i)
          most = std::max(most, std::bit_cast<uint32_t>(static_cast<float>(*x++)) & 0x7FFFFFFF);
      }
  });
  return amax;
}

}  // namespace temper::quant
