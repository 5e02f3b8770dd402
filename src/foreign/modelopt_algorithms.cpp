#include "foreign/modelopt_algorithms.h"

#include <algorithm>
#include <cctype>

namespace temper::foreign {
namespace {

constexpr quant::Element kInt8 = quant::integer_element(8, false, false);
constexpr quant::Element kInt4 = quant::integer_element(4, false, false);
constexpr int64_t kTile = 128;

constexpr ModeloptAlgorithm kAlgorithms[] = {
    {"FP8", "F8_E4M3", CodesIn::kBytes, quant::kE4M3, ScaleGroups::kWhole, "F32", 0, false, "fp8"},
    {"FP8_PER_CHANNEL_PER_TOKEN", "F8_E4M3", CodesIn::kBytes, quant::kE4M3, ScaleGroups::kRows, "F32", 0,
     false, "fp8"},
    {"fp8_pb_wo", "F8_E4M3", CodesIn::kBytes, quant::kE4M3, ScaleGroups::kTiles, "F32", kTile, false, "fp8"},
    {"W8A8_SQ_PER_CHANNEL", "I8", CodesIn::kBytes, kInt8, ScaleGroups::kRows, "F32", 0, false, "int8"},
    {"W8A16", "I8", CodesIn::kBytes, kInt8, ScaleGroups::kRows, "F32", 0, false, "int8"},
    {"W4A16_AWQ", "U8", CodesIn::kPairsOfRows, kInt4, ScaleGroups::kBlocks, "F32", 128, false, "int4"},
    {"W4A8_AWQ", "U8", CodesIn::kPairsOfRows, kInt4, ScaleGroups::kBlocks, "F32", 128, true, "int4", true},
    {"NVFP4", "U8", CodesIn::kPairsOfColumns, quant::kE2M1, ScaleGroups::kBlocks, "F8_E4M3", 16, true,
     "nvfp4"},
    {"W4A16_NVFP4", "U8", CodesIn::kPairsOfColumns, quant::kE2M1, ScaleGroups::kBlocks, "F8_E4M3", 16, true,
     "nvfp4"},
    {"NVFP4_AWQ", "U8", CodesIn::kPairsOfColumns, quant::kE2M1, ScaleGroups::kBlocks, "F8_E4M3", 16, true,
     "nvfp4"},
    {"W4A8_NVFP4_FP8", "U8", CodesIn::kPairsOfColumns, quant::kE2M1, ScaleGroups::kBlocks, "F8_E4M3", 32,
     true},
    {"MXFP8", "F8_E4M3", CodesIn::kBytes, quant::kE4M3, ScaleGroups::kBlocks, "U8", 32, false, "mxfp8"},
    {"mxfp4", "U8", CodesIn::kPairsOfColumns, quant::kE2M1, ScaleGroups::kBlocks, "U8", 32, false, "mxfp4"},
    {"W4A8_MXFP4_FP8", "U8", CodesIn::kPairsOfColumns, quant::kE2M1, ScaleGroups::kBlocks, "U8", 32, false,
     "mxfp4"}};

struct InputsOf {
  std::string_view algorithm;
  ModeloptInputs inputs;
};
constexpr auto kByTensor = ModeloptInputs::Unscaled::kByTensor, kByToken = ModeloptInputs::Unscaled::kByToken;
// Of "mxfp4" nvidia-modelopt's folders do not say whether inputs are rounded: they are not.
constexpr InputsOf kInputs[] = {{"FP8", {"fp8"}},
                                {"FP8_PER_CHANNEL_PER_TOKEN", {"fp8", kByToken}},
                                {"W8A8_SQ_PER_CHANNEL", {"int8"}},
                                {"W4A8_AWQ", {"fp8"}},
                                {"NVFP4", {"nvfp4"}},
                                {"NVFP4_AWQ", {"nvfp4"}},
                                {"W4A8_NVFP4_FP8", {"fp8"}},
                                {"MXFP8", {"mxfp8", kByTensor}},
                                {"W4A8_MXFP4_FP8", {"fp8", kByTensor}}};

bool same_letters(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

int64_t parts_of(int64_t size, int64_t part) { return (size + part - 1) / part; }

}  // namespace

std::vector<Shape> ModeloptAlgorithm::scale_shapes(int64_t rows, int64_t columns, int64_t width) const {
  switch (groups) {
    case ScaleGroups::kWhole:
      return {{}, {1}};
    case ScaleGroups::kRows:
      return {{rows}, {rows, 1}};
    case ScaleGroups::kBlocks:
      return {{rows, parts_of(columns, width)}};
    case ScaleGroups::kTiles:
      break;
  }
  const int64_t down = parts_of(rows, width), across = parts_of(columns, width);
  std::vector<Shape> shapes{{down, 1, across, 1}, {down, across}};
  if (down * across == 1) shapes.push_back({});  // as nvidia-modelopt writes some of one tile
  return shapes;
}

ModeloptInputs inputs_of(const ModeloptAlgorithm& algorithm) {
  for (const InputsOf& each : kInputs)
    if (each.algorithm == algorithm.name) return each.inputs;
  return {};
}

std::span<const ModeloptAlgorithm> modelopt_algorithms() { return kAlgorithms; }

const ModeloptAlgorithm* find_modelopt_algorithm(std::string_view name) {
  for (const ModeloptAlgorithm& each : kAlgorithms)
    if (same_letters(each.name, name)) return &each;
  return nullptr;
}

}  // namespace temper::foreign
