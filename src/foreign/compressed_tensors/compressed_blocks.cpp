#include "foreign/compressed_tensors/compressed_blocks.h"

namespace temper::foreign {
namespace {

constexpr std::string_view kPackedCodes = ".weight_packed", kBlockScale = ".weight_scale";
constexpr int64_t kNvfp4Columns = 16, kMxColumns = 32;

std::string_view dtype_of(const ModelFolder& folder, const std::string& name) {
  const TensorEntry* entry = folder.find(name);
  return entry == nullptr ? std::string_view() : entry->dtype;
}

bool is_packed(const ModelFolder& folder, const QuantizedMatrix& matrix) {
  return dtype_of(folder, matrix.part(kPackedCodes)) == "U8";
}
bool is_nvfp4(const ModelFolder& folder, const QuantizedMatrix& matrix) {
  return dtype_of(folder, matrix.part(kBlockScale)) == "F8_E4M3" ||
         folder.find(matrix.part(kCompressedGlobalScale)) != nullptr;
}

// E4M3 over the scale of the whole, rounded to float32.
Tensor divided(const Tensor& scales, float whole) {
  const Tensor all = Tensor::empty(scales.shape(), DType::kF32, MemoryTag::kWorkspace);
  for (int64_t i = 0; i < all.numel(); ++i)
    all.data<float>()[i] = static_cast<float>(scales.data<Float8E4M3>()[i]) / whole;
  return all;
}

}  // namespace

bool in_compressed_blocks(const ModelFolder& folder, const QuantizedMatrix& matrix) {
  return is_packed(folder, matrix) || is_nvfp4(folder, matrix) ||
         dtype_of(folder, matrix.part(kBlockScale)) == "U8";
}

std::vector<std::string> misfits_of_compressed_blocks(const ModelFolder& folder,
                                                      const QuantizedMatrix& matrix) {
  const bool nvfp4 = is_nvfp4(folder, matrix), packed = nvfp4 || is_packed(folder, matrix);
  const int64_t block = nvfp4 ? kNvfp4Columns : kMxColumns;
  if (matrix.columns % block != 0)
    return {fmt::format("'{}' is in blocks of {}, but has {} columns", matrix.name, block, matrix.columns)};
  std::vector<std::string> found;
  const auto check = [&](std::string_view ending, std::string_view dtype, const std::vector<Shape>& shapes) {
    if (auto misfit = misfit_of(folder, matrix.part(ending), {&dtype, 1}, shapes))
      found.push_back(std::move(*misfit));
  };
  if (packed)
    check(kPackedCodes, "U8", {{matrix.rows, matrix.columns / 2}});
  else
    check(".weight", "F8_E4M3", {{matrix.rows, matrix.columns}});
  check(kBlockScale, nvfp4 ? "F8_E4M3" : "U8", {{matrix.rows, matrix.columns / block}});
  if (nvfp4) check(kCompressedGlobalScale, "F32", {{1}, {}});
  return found;
}

ModeloptChoice choice_of_compressed_blocks(const ModelFolder& folder, const QuantizedMatrix& matrix) {
  const char* const name = is_nvfp4(folder, matrix) ? "NVFP4" : is_packed(folder, matrix) ? "mxfp4" : "MXFP8";
  const ModeloptAlgorithm* const algorithm = find_modelopt_algorithm(name);
  return {algorithm, algorithm->block};
}

Tensor rows_of_compressed_blocks(const ModelFolder& folder, const QuantizedMatrix& matrix, int64_t first,
                                 int64_t count) {
  const bool nvfp4 = is_nvfp4(folder, matrix), packed = is_packed(folder, matrix);
  const std::string name = matrix.part(packed ? kPackedCodes : ".weight");
  CodedMatrix coded;
  coded.codes = folder.tensor(name).narrow(0, first, count);
  coded.layout = packed ? CodesIn::kPairsOfColumns : CodesIn::kBytes;
  coded.element = packed ? quant::kE2M1 : quant::kE4M3;
  coded.scales = folder.tensor(matrix.part(kBlockScale)).narrow(0, first, count);
  if (nvfp4) coded.scales = divided(coded.scales, number_in(folder, matrix.part(kCompressedGlobalScale)));
  coded.group_columns = nvfp4 ? kNvfp4Columns : kMxColumns;
  Tensor read = decoded_rows(coded, matrix.columns, 0, count);
  folder.release(name, coded.codes);
  return read;
}

}  // namespace temper::foreign
