#include "foreign/words/quantized_words.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/threads/threads.h"

namespace temper::foreign {
namespace {

// The place of each of eight integers in a word.
constexpr int64_t kAwqPlaces[] = {0, 4, 1, 5, 2, 6, 3, 7};

// Number `at` of a stream of codes, whose words are `stride` apart.
uint8_t code_in(const int32_t* words, int64_t stride, int bits, int64_t at) {
  const int64_t bit = at * bits, word = bit / 32;
  const auto shift = static_cast<int>(bit % 32);
  uint32_t code = static_cast<uint32_t>(words[word * stride]) >> shift;
  if (shift + bits > 32) code |= static_cast<uint32_t>(words[(word + 1) * stride]) << (32 - shift);
  return static_cast<uint8_t>(code & ((1u << bits) - 1));
}

// Zeros of which each is one more. GPTQModel takes 1 from each by one subtraction from the word, so that a
// zero of 0 borrows from the next one, but treats integers of 3 bits, which cross words, one by one.
Tensor zero_words(const WordedMatrix& matrix) {
  if (!matrix.zeros_less_one || matrix.bits == 3) return matrix.zeros;
  const uint32_t ones = 0xFFFFFFFFu / ((1u << matrix.bits) - 1);
  Tensor words = matrix.zeros.clone(MemoryTag::kWorkspace);
  for (int32_t& word : words.values<int32_t>())
    word = static_cast<int32_t>(static_cast<uint32_t>(word) + ones);
  return words;
}

}  // namespace

Shape shape_in_words(WordsIn order, int bits, int64_t rows, int64_t columns) {
  if (order == WordsIn::kDown) return {rows * bits / 32, columns};
  return {rows, columns * bits / 32};
}

Tensor transposed_from_words(const Tensor& words, WordsIn order, int bits, int64_t rows, int64_t first,
                             int64_t count) {
  const Tensor codes = Tensor::empty({count, rows}, DType::kU8, MemoryTag::kWorkspace);
  const int32_t* const all = words.data<int32_t>();
  const int64_t across = words.dim(1);
  parallel_for(count, [&](int64_t i) {
    uint8_t* const to = codes.data<uint8_t>() + i * rows;
    const int64_t column = first + i;
    if (order == WordsIn::kDown) {
      for (int64_t row = 0; row < rows; ++row) to[row] = code_in(all + column, across, bits, row);
      return;
    }
    const int64_t at = order == WordsIn::kAcross ? column : column / 8 * 8 + kAwqPlaces[column % 8];
    for (int64_t row = 0; row < rows; ++row) to[row] = code_in(all + row * across, 1, bits, at);
  });
  return codes;
}

Tensor words_from(const Tensor& integers, WordsIn order, int bits) {
  const int64_t rows = integers.dim(0), columns = integers.dim(1);
  const Tensor words =
      Tensor::zeros(shape_in_words(order, bits, rows, columns), DType::kI32, MemoryTag::kWorkspace);
  const int64_t across = words.dim(1);
  const bool down = order == WordsIn::kDown;
  // A stream of codes for each row or column, which shares no word with another one.
  parallel_for(down ? columns : rows, [&](int64_t stream) {
    const uint8_t* const codes = integers.data<uint8_t>() + (down ? stream : stream * columns);
    int32_t* const to = words.data<int32_t>() + (down ? stream : stream * across);
    const int64_t stride = down ? across : 1;
    const auto add = [&](int64_t word, uint32_t some) {
      to[word * stride] = static_cast<int32_t>(static_cast<uint32_t>(to[word * stride]) | some);
    };
    for (int64_t i = 0; i < (down ? rows : columns); ++i) {
      const uint32_t code = codes[down ? i * columns : i];
      const int64_t bit = (order == WordsIn::kAwqAcross ? i / 8 * 8 + kAwqPlaces[i % 8] : i) * bits;
      const auto shift = static_cast<int>(bit % 32);
      add(bit / 32, code << shift);
      if (shift + bits > 32) add(bit / 32 + 1, code >> (32 - shift));
    }
  });
  return words;
}

Tensor zeros_in(const WordedMatrix& matrix, int64_t first, int64_t count) {
  const int64_t groups = matrix.scales.dim(0);
  const Tensor held =
      transposed_from_words(zero_words(matrix), matrix.zeros_in, matrix.bits, groups, first, count);
  const int less = matrix.zeros_less_one && matrix.bits == 3 ? 1 : 0;
  const Tensor zeros = Tensor::empty({count, groups}, DType::kF32, MemoryTag::kWorkspace);
  for (int64_t i = 0; i < held.numel(); ++i)
    zeros.data<float>()[i] = static_cast<float>((held.data<uint8_t>()[i] + less) & ((1 << matrix.bits) - 1));
  return zeros;
}

Tensor decoded_rows(const WordedMatrix& matrix, int64_t columns, int64_t first, int64_t count) {
  CodedMatrix coded;
  coded.codes = transposed_from_words(matrix.codes, matrix.codes_in, matrix.bits, columns, first, count);
  coded.element = quant::integer_element(8, false, true);
  coded.scales = matrix.scales.narrow(1, first, count)
                     .transpose(0, 1)
                     .contiguous(MemoryTag::kWorkspace)
                     .to(DType::kF32, MemoryTag::kWorkspace);
  coded.zeros = zeros_in(matrix, first, count);
  coded.group_columns = matrix.group;
  coded.groups_of_columns = matrix.groups;
  return decoded_rows(coded, columns, 0, count);
}

const Json* one_of(const Json& config, std::string_view key, std::string_view other) {
  if (!config.is_object()) return nullptr;
  const Json* found = config.find(key);
  if (found == nullptr) found = config.find(other);
  return found == nullptr || found->is_null() ? nullptr : found;
}

int bits_of_config(const Json& config, std::span<const int> known, const std::string& where) {
  const Json* bits = one_of(config, "bits", "w_bit");
  if (bits == nullptr || !bits->is_int() ||
      std::find(known.begin(), known.end(), bits->as_int()) == known.end())
    fail("[{}] quantization_config: bits is {}, expected one of [{}]; quantize the model otherwise", where,
         bits == nullptr ? "missing" : bits->dump(), fmt::join(known, ", "));
  return static_cast<int>(bits->as_int());
}

int64_t group_of_config(const Json& config, const std::string& where) {
  const Json* size = one_of(config, "group_size", "q_group_size");
  if (size == nullptr || !size->is_int() || size->as_int() == 0 || size->as_int() < -1 ||
      size->as_int() > 1'000'000)
    fail(
        "[{}] quantization_config: group_size is {}, expected the columns of a group, or -1 for all of them; "
        "copy it from the folder that was published",
        where, size == nullptr ? "missing" : size->dump());
  return std::max<int64_t>(0, size->as_int());
}

}  // namespace temper::foreign
