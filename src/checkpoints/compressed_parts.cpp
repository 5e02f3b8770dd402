#include "checkpoints/compressed_parts.h"

#include "base/error.h"
#include "quant/packing.h"

namespace temper::checkpoints {
namespace {

constexpr std::string_view kWordsFormat = "pack-quantized";

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

// Integers in bytes of two rows or of one, with half of their codes added, in words.
Tensor words_of(const ModeloptAlgorithm& algorithm, const Tensor& codes) {
  const int bits = algorithm.element.bits, in_word = 32 / bits;
  const Tensor bytes = algorithm.layout == CodesIn::kPairsOfRows ? quant::unpacked_rows(codes) : codes;
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

std::string_view compressed_format(const ModeloptAlgorithm& algorithm) {
  for (const auto& [name, format] : {std::pair<std::string_view, std::string_view>{"FP8", "float-quantized"},
                                     {"FP8_PER_CHANNEL_PER_TOKEN", "float-quantized"},
                                     {"fp8_pb_wo", "float-quantized"},
                                     {"W8A8_SQ_PER_CHANNEL", "int-quantized"},
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
    return {words_of(algorithm, tensor), Tensor::from(std::vector<int64_t>{matrix[0], matrix[1]})};
  }
  if (ending == ".weight_scale") return {tensor.reshape(scale_shape(algorithm, info.shape))};
  if (ending == ".weight_scale_2" || (ending == ".input_scale" && algorithm.second))
    return {reciprocal(tensor)};
  if (ending == ".input_scale") return {tensor.reshape({1})};
  refuse(info);
}

}  // namespace temper::checkpoints
