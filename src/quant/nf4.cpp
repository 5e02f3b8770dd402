#include "quant/nf4.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "base/threads/threads.h"

namespace temper::quant {
namespace {

// Seven decades, each of twice as many numbers as the one below: the middles between even steps from 0.1
// to 1.
Nf4ScaleNumbers make_scale_numbers() {
  Nf4ScaleNumbers numbers{};
  size_t at = 0;
  for (int decade = 0; decade < 7; ++decade) {
    const int steps = 1 << decade;
    const auto power = static_cast<float>(std::pow(10.0, decade - 6));
    const float first = 0.1f, last = 1, step = (last - first) / static_cast<float>(steps);
    // From the nearer end, rounded once.
    const auto edge = [&](int i) {
      const double way = double{step} * (i < (steps + 1) / 2 ? i : steps - i);
      return static_cast<float>(i < (steps + 1) / 2 ? first + way : last - way);
    };
    for (int i = 0; i < steps; ++i) {
      const float number = power * ((edge(i) + edge(i + 1)) / 2);
      numbers[at++] = number;
      numbers[at++] = -number;
    }
  }
  numbers[at++] = 0;
  numbers[at++] = 1;
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

// What numbers above belong to the next code: the middles, themselves not.
template <size_t kCount>
std::array<float, kCount - 1> middles(const std::array<float, kCount>& numbers) {
  std::array<float, kCount - 1> between{};
  for (size_t i = 0; i + 1 < kCount; ++i)
    between[i] = static_cast<float>((double{numbers[i]} + double{numbers[i + 1]}) / 2);
  return between;
}

uint8_t nf4_code(float x) {
  static const auto between = middles(kNf4Numbers);
  int code = 0;
  for (const float middle : between) code += x > middle ? 1 : 0;
  return static_cast<uint8_t>(code);
}

uint8_t scale_code(float x) {
  static const auto between = middles(nf4_scale_numbers());
  return static_cast<uint8_t>(std::lower_bound(between.begin(), between.end(), x) - between.begin());
}

// Two codes in each byte, and the magnitude, which is NaN or infinity where a value is.
template <class T>
float encode_block(const T* values, int64_t count, uint8_t* codes) {
  uint32_t largest = 0;  // as bits, in whose order NaN comes last
  for (int64_t i = 0; i < count; ++i)
    largest = std::max(largest, std::bit_cast<uint32_t>(static_cast<float>(values[i])) & 0x7FFFFFFF);
  const auto magnitude = std::bit_cast<float>(largest);
  const float inverse = magnitude > 0 ? 1 / magnitude : 0;
  for (int64_t i = 0; i < count; i += 2)
    codes[i / 2] = static_cast<uint8_t>(nf4_code(static_cast<float>(values[i]) * inverse) << 4 |
                                        nf4_code(static_cast<float>(values[i + 1]) * inverse));
  return magnitude;
}

// Replaces the magnitudes by what double quantization keeps of them.
void quantize_again(Nf4& to) {
  const Tensor held = to.scales;
  const auto magnitudes = held.values<float>();
  const int64_t blocks = held.numel();
  double sum = 0;
  for (const float magnitude : magnitudes) sum += magnitude;
  to.offset = static_cast<float>(sum / static_cast<double>(std::max<int64_t>(blocks, 1)));
  to.scale_codes = Tensor::empty({blocks}, DType::kU8, MemoryTag::kWorkspace);
  to.scales =
      Tensor::empty({(blocks + kNf4ScaleBlock - 1) / kNf4ScaleBlock}, DType::kF32, MemoryTag::kWorkspace);
  for (int64_t first = 0; first < blocks; first += kNf4ScaleBlock) {
    const int64_t count = std::min(kNf4ScaleBlock, blocks - first);
    float largest = 0;
    const auto rest = [&](int64_t i) { return magnitudes[static_cast<size_t>(first + i)] - to.offset; };
    for (int64_t i = 0; i < count; ++i) largest = std::max(largest, std::fabs(rest(i)));
    const float inverse = largest > 0 ? 1 / largest : 0;
    to.scales.data<float>()[first / kNf4ScaleBlock] = largest;
    for (int64_t i = 0; i < count; ++i)
      to.scale_codes.data<uint8_t>()[first + i] = scale_code(rest(i) * inverse);
  }
}

// Replaces double quantization by the magnitudes that it means.
void widen_scales(Nf4& to) {
  const Tensor magnitudes = Tensor::empty(to.scale_codes.shape(), DType::kF32, MemoryTag::kWorkspace);
  const auto codes = to.scale_codes.values<uint8_t>();
  const float* const scales = to.scales.data<float>();
  for (size_t block = 0; block < codes.size(); ++block)
    magnitudes.data<float>()[block] =
        nf4_magnitude(nf4_scale_numbers()[codes[block]], scales[block / size_t{kNf4ScaleBlock}], to.offset);
  to.scales = magnitudes;
  to.scale_codes = {};
  to.offset = 0;
}

}  // namespace

const Nf4ScaleNumbers& nf4_scale_numbers() {
  static const Nf4ScaleNumbers numbers = make_scale_numbers();
  return numbers;
}

Nf4 encode_nf4(std::string_view name, const Tensor& values, bool double_quantization) {
  const int64_t rows = values.dim(0), columns = values.dim(1), count = rows * columns;
  if (columns % 2 != 0) fail("[{}] has {} columns: two codes of nf4 share a byte", name, columns);
  const int64_t blocks = (count + kNf4Block - 1) / kNf4Block;
  Nf4 encoded{Tensor::empty({rows, columns / 2}, DType::kU8, MemoryTag::kWorkspace),
              Tensor::empty({blocks}, DType::kF32, MemoryTag::kWorkspace),
              {}};
  const auto magnitudes = encoded.scales.values<float>();
  visit_float(values.dtype(), [&]<class T>() {
    const T* const from = values.values<T>().data();
    parallel_ranges(blocks, 1 << 10, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        const int64_t first = block * kNf4Block;
        encoded.scales.data<float>()[block] = encode_block(from + first, std::min(kNf4Block, count - first),
                                                           encoded.codes.data<uint8_t>() + first / 2);
      }
    });
  });
  for (size_t block = 0; block < magnitudes.size(); ++block)
    if (!std::isfinite(magnitudes[block]))
      fail("[{}] row {} holds a value that is not finite: it cannot be kept in nf4", name,
           static_cast<int64_t>(block) * kNf4Block / std::max<int64_t>(columns, 1));
  if (double_quantization) quantize_again(encoded);
  return encoded;
}

Nf4 with_magnitudes(std::string_view name, Nf4 encoded, bool double_quantization) {
  const auto scales = encoded.scales.values<float>();
  if (!std::isfinite(encoded.offset) ||
      !std::all_of(scales.begin(), scales.end(), [](float scale) { return std::isfinite(scale); }))
    fail("[{}] has a magnitude that is not finite: it cannot be kept in nf4", name);
  if (encoded.is_double() && !double_quantization)
    widen_scales(encoded);
  else if (!encoded.is_double() && double_quantization)
    quantize_again(encoded);
  return encoded;
}

}  // namespace temper::quant
