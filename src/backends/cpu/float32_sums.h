#pragma once
#include <algorithm>
#include <type_traits>
#include <vector>

#include "autograd/grad_slot.h"
#include "backends/floats.h"

namespace temper::backends {

// Sums for elements [first, first + size) of a gradient: add(float*) adds to what is there, or to zeros. What
// is kept in bfloat16 is rounded once, to nearest.
template <class Add>
void sum_in_float32(const GradTarget& target, int64_t first, int64_t size, const Add& add) {
  visit_wide(target.buffer.dtype(), [&]<class T>() {
    T* kept = target.buffer.data<T>() + first;
    if constexpr (std::is_same_v<T, float>) {
      if (!target.accumulate) std::fill_n(kept, size, 0.0f);
      add(kept);
    } else {
      std::vector<float> sums(static_cast<size_t>(size));
      if (target.accumulate)
        std::transform(kept, kept + size, sums.begin(), [](T value) { return static_cast<float>(value); });
      add(sums.data());
      std::transform(sums.begin(), sums.end(), kept, [](float value) { return T(value); });
    }
  });
}

}  // namespace temper::backends
