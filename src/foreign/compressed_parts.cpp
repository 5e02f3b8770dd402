#include "foreign/compressed_parts.h"

#include "base/error.h"
#include "quant/packing.h"

namespace temper::foreign {
namespace {

constexpr std::string_view kWordsFormat = "pack-quantized", kBytesFormat = "int-quantized";

constexpr quant::Element kCompressedInt8 = quant::integer_element(8, false, false);
constexpr quant::Element kCompressedInt4 = quant::integer_element(4, false, false);

// Codes are bytes before they are packed. Where inputs are rounded they may have zero points as well.
constexpr ModeloptAlgorithm integers(std::string_view name, const quant::Element& element, ScaleGroups groups,
                                     bool zeros) {
  return {.name = name,
          .dtype = element.bits == 8 ? "I8" : "U8",
          .layout = CodesIn::kBytes,
          .element = element,
          .groups = groups,
          .scale_dtype = "F32",
          .block = groups == ScaleGroups::kBlocks ? 128 : 0,
          .zeros = zeros};
}
constexpr ModeloptAlgorithm kCompressedAlgorithms[] = {
    integers("W4A16_ASYM", kCompressedInt4, ScaleGroups::kBlocks, true),
    integers("W4A16_ASYM per channel", kCompressedInt4, ScaleGroups::kRows, true),
    integers("W8A16_ASYM", kCompressedInt8, ScaleGroups::kRows, true),
    integers("W8A16_ASYM in blocks", kCompressedInt8, ScaleGroups::kBlocks, true),
    integers("W8A8", kCompressedInt8, ScaleGroups::kRows, false),
    integers("W8A8_ASYM", kCompressedInt8, ScaleGroups::kRows, true),
};

// In files: the module, and what follows its name.
struct Name {
  std::string module, ending;
};
Name name_of(const TensorInfo& info) {
  const size_t dot = info.name.rfind('.');
  return {info.name.substr(0, dot), info.name.substr(dot)};
}

bool in_words(const ModeloptAlgorithm& algorithm) { return compressed_format(algorithm) == kWordsFormat; }

// Of a matrix whose codes an info describes.
Shape matrix_shape(const ModeloptAlgorithm& algorithm, const Shape& codes) {
  if (algorithm.layout == CodesIn::kPairsOfRows) return {codes[0] * 2, codes[1]};
  return codes;
}

// Integers in bytes, with half of their codes added, in words along the columns.
Tensor words_of(int bits, const Tensor& bytes) {
  const int in_word = 32 / bits;
  const int64_t rows = bytes.dim(0), columns = bytes.dim(1);
  const Shape shape = codes_shape(CodesIn::kWords, bits, rows, columns);
  const Tensor words = Tensor::zeros(shape, DType::kI32, MemoryTag::kWorkspace);
  const auto* from = static_cast<const uint8_t*>(bytes.raw());
  const uint32_t mask = (1u << bits) - 1, half = 1u << (bits - 1);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t c = 0; c < columns; ++c) {
      int32_t& word = words.data<int32_t>()[row * shape[1] + c / in_word];
      const uint32_t code = (from[row * columns + c] + half) & mask;
      word = static_cast<int32_t>(static_cast<uint32_t>(word) | code << (c % in_word * bits));
    }
  return words;
}

// Zero points [rows, column groups], one for each row of scales, in words along the rows.
Shape zeros_in_words(const ModeloptAlgorithm& algorithm, const Shape& scales) {
  const Shape across = codes_shape(CodesIn::kWords, algorithm.element.bits, 1, scales[0]);
  return {across[1], scales.ndim() == 1 ? 1 : scales[1]};
}
Tensor words_of_zeros(const ModeloptAlgorithm& algorithm, const Tensor& zeros) {
  const Shape scales = zeros.shape();
  const Tensor down =
      zeros.reshape({scales[0], scales.ndim() == 1 ? 1 : scales[1]}).transpose(0, 1).contiguous();
  return words_of(algorithm.element.bits, down).transpose(0, 1).contiguous(MemoryTag::kWorkspace);
}

// Of scales: one is [1], those of rows [rows, 1], those of tiles [down, across].
Shape scale_shape(const ModeloptAlgorithm& algorithm, const Shape& shape) {
  switch (algorithm.groups) {
    case ScaleGroups::kWhole:
      return {1};
    case ScaleGroups::kRows:
      return {shape[0], 1};
    case ScaleGroups::kTiles:
      return shape.ndim() == 4 ? Shape{shape[0], shape[2]} : shape;
    case ScaleGroups::kBlocks:
      break;
  }
  return shape;
}

Tensor reciprocal(const Tensor& number) {
  return Tensor::from<float>(std::vector<float>{1 / *number.data<float>()}, {1});
}

[[noreturn]] void refuse(const TensorInfo& info) {
  fail("[{}] has no place in compressed-tensors' folders: export it in the form of modelopt", info.name);
}

}  // namespace

const ModeloptAlgorithm* find_compressed_algorithm(std::string_view name) {
  for (const ModeloptAlgorithm& each : kCompressedAlgorithms)
    if (each.name == name) return &each;
  return nullptr;
}

bool only_compressed(const ModeloptAlgorithm& algorithm) {
  return find_compressed_algorithm(algorithm.name) != nullptr;
}

std::string_view compressed_format(const ModeloptAlgorithm& algorithm) {
  for (const auto& [name, format] : {std::pair<std::string_view, std::string_view>{"FP8", "float-quantized"},
                                     {"FP8_PER_CHANNEL_PER_TOKEN", "float-quantized"},
                                     {"fp8_pb_wo", "float-quantized"},
                                     {"W8A8_SQ_PER_CHANNEL", kBytesFormat},
                                     {"W8A8", kBytesFormat},
                                     {"W8A8_ASYM", kBytesFormat},
                                     {"W4A16_ASYM", kWordsFormat},
                                     {"W4A16_ASYM per channel", kWordsFormat},
                                     {"W8A16_ASYM", kWordsFormat},
                                     {"W8A16_ASYM in blocks", kWordsFormat},
                                     {"W8A16", kWordsFormat},
                                     {"W4A16_AWQ", kWordsFormat},
                                     {"NVFP4", "nvfp4-pack-quantized"},
                                     {"W4A16_NVFP4", "nvfp4-pack-quantized"},
                                     {"MXFP8", "mxfp8-quantized"},
                                     {"mxfp4", "mxfp4-pack-quantized"}})
    if (algorithm.name == name) return format;
  return {};
}

std::vector<TensorInfo> compressed_infos(const ModeloptAlgorithm& algorithm, const TensorInfo& info) {
  const auto& [module, ending] = name_of(info);
  if (ending == ".weight") {
    const Shape matrix = matrix_shape(algorithm, info.shape);
    if (in_words(algorithm))
      return {{module + ".weight_packed",
               codes_shape(CodesIn::kWords, algorithm.element.bits, matrix[0], matrix[1]), DType::kI32},
              {module + ".weight_shape", {2}, DType::kI64}};
    return {{module + (algorithm.layout == CodesIn::kPairsOfColumns ? ".weight_packed" : ".weight"),
             info.shape, info.dtype}};
  }
  if (ending == ".weight_scale") return {{info.name, scale_shape(algorithm, info.shape), info.dtype}};
  if (ending == ".weight_zero_point")
    return in_words(algorithm)
               ? std::vector<TensorInfo>{{info.name, zeros_in_words(algorithm, info.shape), DType::kI32}}
               : std::vector<TensorInfo>{{info.name, scale_shape(algorithm, info.shape), DType::kI8}};
  if (ending == ".input_zero_point") return {{info.name, {1}, DType::kI8}};
  if (ending == ".weight_scale_2") return {{module + ".weight_global_scale", {1}, DType::kF32}};
  if (ending == ".input_scale")
    return {{module + (algorithm.second ? ".input_global_scale" : ending), {1}, DType::kF32}};
  refuse(info);
}

std::vector<Tensor> compressed_tensors(const ModeloptAlgorithm& algorithm, const TensorInfo& info,
                                       const Tensor& tensor) {
  const auto& [module, ending] = name_of(info);
  if (ending == ".weight") {
    if (!in_words(algorithm)) return {tensor};
    const Shape matrix = matrix_shape(algorithm, info.shape);
    const Tensor bytes = algorithm.layout == CodesIn::kPairsOfRows ? quant::unpacked_rows(tensor) : tensor;
    return {words_of(algorithm.element.bits, bytes),
            Tensor::from(std::vector<int64_t>{matrix[0], matrix[1]})};
  }
  if (ending == ".weight_scale") return {tensor.reshape(scale_shape(algorithm, info.shape))};
  if (ending == ".weight_zero_point")
    return {in_words(algorithm) ? words_of_zeros(algorithm, tensor)
                                : tensor.reshape(scale_shape(algorithm, info.shape))};
  if (ending == ".input_zero_point") return {tensor.reshape({1})};
  if (ending == ".weight_scale_2" || (ending == ".input_scale" && algorithm.second))
    return {reciprocal(tensor)};
  if (ending == ".input_scale") return {tensor.reshape({1})};
  refuse(info);
}

}  // namespace temper::foreign
