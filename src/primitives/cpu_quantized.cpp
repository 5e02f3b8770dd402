#include <array>

#include "base/threads/threads.h"
#include "primitives/cpu.h"

namespace temper::primitives::cpu {

// A row's codes are few: what each of them becomes is looked up.
void dequantize(const Tensor& codes, const Tensor& scales, const Tensor& y) {
  const int64_t rows = codes.dim(0), columns = codes.dim(1);
  const auto* const from = reinterpret_cast<const uint8_t*>(codes.data<Float8E4M3>());
  const float* const scale = scales.data<float>();
  std::array<float, 256> values;
  for (size_t code = 0; code < values.size(); ++code)
    values[code] = static_cast<float>(std::bit_cast<Float8E4M3>(static_cast<uint8_t>(code)));
  visit_float(y.dtype(), [&]<class T>() {
    T* const to = y.data<T>();
    const int64_t grain = std::max<int64_t>(1, (1 << 17) / std::max<int64_t>(columns, 1));
    parallel_ranges(rows, grain, [&](int64_t begin, int64_t end) {
      std::array<T, 256> meaning;
      for (int64_t row = begin; row < end; ++row) {
        for (size_t code = 0; code < values.size(); ++code) meaning[code] = T(values[code] * scale[row]);
        const uint8_t* const in = from + row * columns;
        T* const out = to + row * columns;
        for (int64_t i = 0; i < columns; ++i) out[i] = meaning[in[i]];
      }
    });
  });
}

}  // namespace temper::primitives::cpu
