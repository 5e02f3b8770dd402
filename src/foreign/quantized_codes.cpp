#include "foreign/quantized_codes.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "base/threads/threads.h"
#include "quant/format.h"

namespace temper::foreign {
namespace {

std::array<float, 256> numbers_of(const CodedMatrix& matrix) {
  const quant::Element& element = matrix.element;
  const int codes = 1 << element.bits;
  std::array<float, 256> numbers{};
  for (int code = 0; code < codes; ++code) {
    numbers[static_cast<size_t>(code)] = quant::number_of(element, static_cast<uint8_t>(code));
    if (matrix.offset) numbers[static_cast<size_t>(code)] = static_cast<float>(code - codes / 2);
  }
  // The one NaN of E4M3, of either sign; quant/element.h only has numbers.
  if (element == quant::kE4M3) numbers[0x7F] = numbers[0xFF] = std::nanf("");
  return numbers;
}

float scale_at(const Tensor& scales, int64_t i) {
  switch (scales.dtype()) {
    case DType::kU8: {
      const uint8_t code = scales.data<uint8_t>()[i];
      return code == 255 ? std::nanf("") : quant::power_of(code);
    }
    case DType::kF8E4M3:
      return static_cast<float>(scales.data<Float8E4M3>()[i]);
    default:
      return visit_float(scales.dtype(), [&]<class T>() { return static_cast<float>(scales.data<T>()[i]); });
  }
}

// The codes of a row, one in each byte.
void unpack_row(const CodedMatrix& matrix, int64_t row, std::span<uint8_t> codes) {
  const auto columns = static_cast<int64_t>(codes.size());
  const auto* bytes = static_cast<const uint8_t*>(matrix.codes.raw());
  switch (matrix.layout) {
    case CodesIn::kBytes:
      std::copy_n(bytes + row * columns, columns, codes.begin());
      return;
    case CodesIn::kPairsOfColumns: {
      const uint8_t* own = bytes + row * (columns / 2);
      for (int64_t i = 0; i < columns / 2; ++i) {
        codes[static_cast<size_t>(2 * i)] = own[i] & 15;
        codes[static_cast<size_t>(2 * i + 1)] = own[i] >> 4;
      }
      return;
    }
    case CodesIn::kPairsOfRows: {
      const uint8_t* own = bytes + row / 2 * columns;
      const int shift = row % 2 == 0 ? 0 : 4;
      for (int64_t i = 0; i < columns; ++i) codes[static_cast<size_t>(i)] = own[i] >> shift & 15;
      return;
    }
    case CodesIn::kWords: {
      const int bits = matrix.element.bits, in_word = 32 / bits;
      const auto* words = matrix.codes.data<int32_t>() + row * matrix.codes.dim(1);
      for (int64_t i = 0; i < columns; ++i)
        codes[static_cast<size_t>(i)] = static_cast<uint8_t>(
            static_cast<uint32_t>(words[i / in_word]) >> (i % in_word * bits) & ((1u << bits) - 1));
      return;
    }
  }
}

// Of one row: a scale and a zero for each group of columns.
struct RowGroups {
  std::vector<float> scales, zeros;
};

RowGroups groups_of_row(const CodedMatrix& matrix, int64_t row) {
  const int64_t groups = matrix.scales.dim(1);
  const int64_t first = row / matrix.group_rows * groups;
  RowGroups all;
  for (int64_t g = 0; g < groups; ++g) {
    all.scales.push_back(scale_at(matrix.scales, first + g) * matrix.whole);
    all.zeros.push_back(matrix.zeros.defined() ? matrix.zeros.data<float>()[first + g] : 0.f);
  }
  return all;
}

}  // namespace

Shape codes_shape(CodesIn layout, int bits, int64_t rows, int64_t columns) {
  switch (layout) {
    case CodesIn::kBytes:
      return {rows, columns};
    case CodesIn::kPairsOfColumns:
      return {rows, columns / 2};
    case CodesIn::kPairsOfRows:
      return {rows / 2, columns};
    case CodesIn::kWords:
      break;
  }
  return {rows, (columns * bits + 31) / 32};
}

Tensor decoded_rows(const CodedMatrix& matrix, int64_t columns, int64_t first, int64_t count) {
  const Tensor read = Tensor::empty({count, columns}, DType::kF32, MemoryTag::kWorkspace);
  const std::array<float, 256> numbers = numbers_of(matrix);
  const int32_t* groups =
      matrix.groups_of_columns.defined() ? matrix.groups_of_columns.data<int32_t>() : nullptr;
  const float* factors = matrix.of_columns.defined() ? matrix.of_columns.data<float>() : nullptr;
  parallel_for(count, [&](int64_t row) {
    std::vector<uint8_t> codes(static_cast<size_t>(columns));
    unpack_row(matrix, first + row, codes);
    const RowGroups of_row = groups_of_row(matrix, first + row);
    float* to = read.data<float>() + row * columns;
    for (int64_t c = 0; c < columns; ++c) {
      const auto g = static_cast<size_t>(groups != nullptr ? groups[c] : c / matrix.group_columns);
      to[c] = (numbers[codes[static_cast<size_t>(c)]] - of_row.zeros[g]) * of_row.scales[g];
    }
    if (matrix.again)
      for (int64_t c = 0; c < columns; ++c)
        to[c] = *matrix.again > 0 ? quant::round_to(quant::kE4M3, to[c] / *matrix.again) * *matrix.again : 0;
    if (factors != nullptr)
      for (int64_t c = 0; c < columns; ++c) to[c] *= factors[c];
  });
  return read;
}

std::optional<std::string> misfit_of(const ModelFolder& folder, const std::string& name,
                                     std::span<const std::string_view> dtypes,
                                     std::span<const Shape> shapes) {
  const TensorEntry* entry = folder.find(name);
  if (entry == nullptr) return fmt::format("'{}' is missing, but the other parts of its matrix exist", name);
  const bool of_dtype = std::find(dtypes.begin(), dtypes.end(), entry->dtype) != dtypes.end();
  const bool of_shape = std::any_of(shapes.begin(), shapes.end(), [&](const Shape& shape) {
    return std::equal(shape.begin(), shape.end(), entry->shape.begin(), entry->shape.end());
  });
  if (of_dtype && of_shape) return std::nullopt;
  std::vector<std::string> expected;
  for (const Shape& shape : shapes) expected.push_back(to_string(shape));
  return fmt::format("'{}' is {} [{}], expected {} {}", name, entry->dtype, fmt::join(entry->shape, ", "),
                     fmt::join(dtypes, " or "), fmt::join(expected, " or "));
}

bool MatrixCheck::operator()(std::string_view ending, std::span<const std::string_view> dtypes,
                             const std::vector<Shape>& shapes) {
  if (auto misfit = misfit_of(folder_, matrix_.part(ending), dtypes, shapes))
    found.push_back(std::move(*misfit));
  return found.empty();
}

std::vector<std::string> parts_with(const ModelFolder& folder, const QuantizedMatrix& matrix,
                                    std::span<const std::string_view> endings) {
  std::vector<std::string> parts;
  for (const std::string_view ending : endings)
    if (std::string name = matrix.part(ending); folder.find(name) != nullptr)
      parts.push_back(std::move(name));
  return parts;
}

float number_in(const ModelFolder& folder, const std::string& name) {
  return scale_at(folder.tensor(name), 0);
}

void release_rows(const ModelFolder& folder, const std::string& name, const CodedMatrix& matrix,
                  int64_t first, int64_t count) {
  const int64_t in_one = matrix.layout == CodesIn::kPairsOfRows ? 2 : 1;
  const int64_t begin = first / in_one, end = (first + count + in_one - 1) / in_one;
  folder.release(name, matrix.codes.narrow(0, begin, end - begin));
}

}  // namespace temper::foreign
