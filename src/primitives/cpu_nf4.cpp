#include "base/threads/threads.h"
#include "primitives/cpu.h"
#include "primitives/nf4.h"

namespace temper::primitives::cpu {
namespace {

// `count` codes of one block: what each of the 16 becomes is looked up.
template <class T>
void widen_block(const uint8_t* codes, float magnitude, T* to, int64_t count) {
  std::array<T, 16> meaning;
  for (size_t code = 0; code < meaning.size(); ++code)
    meaning[code] = T(quant::kNf4Numbers[code] * magnitude);
  for (int64_t i = 0; i < count; i += 2) {
    to[i] = meaning[codes[i / 2] >> 4];
    to[i + 1] = meaning[codes[i / 2] & 15];
  }
}

}  // namespace

void dequantize_nf4(const Nf4Matrix& matrix, const Tensor& y) {
  const int64_t columns = matrix.columns();
  const quant::Nf4ScaleNumbers& numbers = quant::nf4_scale_numbers();
  const auto* const codes = matrix.codes.data<uint8_t>();
  const bool is_double = matrix.is_double();
  const auto* const scale_codes = is_double ? matrix.scale_codes.data<uint8_t>() : nullptr;
  const auto* const offsets = is_double ? matrix.offsets.data<float>() : nullptr;
  const auto* const scales = matrix.scales.data<float>();
  const auto magnitude_of = [&](int64_t row, int64_t block) {
    if (!is_double) return scales[block];
    return quant::nf4_magnitude(numbers[scale_codes[block]], scales[block / quant::kNf4ScaleBlock],
                                offsets[row]);
  };
  visit_float(y.dtype(), [&]<class T>() {
    T* const to = y.data<T>();
    const int64_t grain = std::max<int64_t>(1, (1 << 16) / columns);
    parallel_ranges(matrix.rows(), grain, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t start = matrix.starts.data<int64_t>()[row];
        for (int64_t column = 0; column < columns;) {
          const int64_t block = (start + column) / quant::kNf4Block,
                        until = std::min(columns, (block + 1) * quant::kNf4Block - start);
          const int64_t at = row * columns + column;
          widen_block(codes + at / 2, magnitude_of(row, block), to + at, until - column);
          column = until;
        }
      }
    });
  });
}

}  // namespace temper::primitives::cpu
