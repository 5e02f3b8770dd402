#include "base/error.h"
#include "foreign/matrix_writers.h"

// Folders of quant_method "fp8", as DeepSeek and Qwen publish them and transformers writes them: of the
// matrix X.weight [rows, columns] there are X.weight, E4M3 of its shape, and X.weight_scale_inv (or
// X.weight_scale), which codes are multiplied by: one for each tile of weight_block_size, where the last ones
// may be smaller, one for each row, or one. X.activation_scale and X.input_scale have no meaning for it.
namespace temper::foreign {
namespace {

// As nvidia-modelopt writes tiles, except the name and the shape of the scales.
class TilesWriter : public MatrixWriter {
 public:
  TilesWriter(const QuantizedMatrix& matrix, int64_t tile)
      : inner_(modelopt_writer({find_modelopt_algorithm("fp8_pb_wo"), tile}, matrix)),
        scale_{matrix.part(".weight_scale_inv"),
               {(matrix.rows + tile - 1) / tile, (matrix.columns + tile - 1) / tile},
               DType::kF32} {}

  std::vector<TensorInfo> list() const override { return {inner_->list().front(), scale_}; }
  std::vector<Tensor> encode(const Tensor& values, float amax) const override {
    std::vector<Tensor> parts = inner_->encode(values, amax);
    parts.back() = parts.back().reshape(scale_.shape);
    return parts;
  }

 private:
  WritesMatrix inner_;
  TensorInfo scale_;
};

class Fp8Form : public QuantizedForm {
 public:
  Fp8Form(const Json& config, const std::string& where) {
    const Json* size = config.is_object() ? config.find("weight_block_size") : nullptr;
    if (size == nullptr || size->is_null()) return;
    const auto is_side = [](const Json& side) {
      return side.is_int() && side.as_int() > 0 && side.as_int() <= 1'000'000;
    };
    if (!size->is_array() || size->as_array().size() != 2 || !is_side(size->as_array()[0]) ||
        !is_side(size->as_array()[1]))
      fail("[{}] quantization_config: weight_block_size is {}, expected [rows, columns] of a tile or null",
           where, size->dump());
    tile_rows_ = size->as_array()[0].as_int();
    tile_columns_ = size->as_array()[1].as_int();
  }

  std::string name() const override {
    return tile_rows_ == 0 ? "fp8" : fmt::format("fp8 in tiles of {} × {}", tile_rows_, tile_columns_);
  }

  std::vector<std::string> parts(const ModelFolder& folder, const QuantizedMatrix& matrix) const override {
    const TensorEntry* entry = folder.find(matrix.name);
    if ((entry == nullptr || entry->dtype != "F8_E4M3") && folder.find(matrix.part(kScale)) == nullptr)
      return {};
    return parts_with(folder, matrix, kEndings);
  }

  std::vector<std::string> misfits(const ModelFolder& folder, const QuantizedMatrix& matrix) const override {
    std::vector<std::string> found;
    const Shape codes[] = {{matrix.rows, matrix.columns}};
    if (auto misfit = misfit_of(folder, matrix.name, kCodes, codes)) found.push_back(std::move(*misfit));
    std::vector<Shape> shapes{{}, {1}, {matrix.rows}, {matrix.rows, 1}};
    if (tile_rows_ > 0) shapes = {{down(matrix), across(matrix)}};
    if (auto misfit = misfit_of(folder, scale_of(folder, matrix), kFloats, shapes))
      found.push_back(std::move(*misfit));
    return found;
  }

  Tensor rows(const ModelFolder& folder, const QuantizedMatrix& matrix, int64_t first,
              int64_t count) const override {
    CodedMatrix coded{folder.tensor(matrix.name), CodesIn::kBytes, quant::kE4M3, false,
                      folder.tensor(scale_of(folder, matrix))};
    coded.group_columns = tile_rows_ > 0 ? tile_columns_ : matrix.columns;
    coded.group_rows = tile_rows_ > 0 ? tile_rows_ : coded.scales.numel() == 1 ? matrix.rows : 1;
    const int64_t groups = tile_rows_ > 0 ? across(matrix) : 1;
    coded.scales = coded.scales.reshape({coded.scales.numel() / groups, groups});
    Tensor read = decoded_rows(coded, matrix.columns, first, count);
    release_rows(folder, matrix.name, coded, first, count);
    return read;
  }

  // Of square tiles, whose scales have the usual name.
  WritesMatrix writer(const ModelFolder& folder, const QuantizedMatrix& matrix) const override {
    if (tile_rows_ == 0 || tile_rows_ != tile_columns_ || scale_of(folder, matrix) != matrix.part(kScale))
      return nullptr;
    return std::make_unique<TilesWriter>(matrix, tile_rows_);
  }

 private:
  static constexpr std::string_view kScale = ".weight_scale_inv", kOtherScale = ".weight_scale";
  static constexpr std::string_view kEndings[] = {".weight", kScale, kOtherScale, ".activation_scale",
                                                  ".input_scale"};
  static constexpr std::string_view kFloats[] = {"F32", "BF16", "F16"}, kCodes[] = {"F8_E4M3"};

  int64_t down(const QuantizedMatrix& matrix) const { return (matrix.rows + tile_rows_ - 1) / tile_rows_; }
  int64_t across(const QuantizedMatrix& matrix) const {
    return (matrix.columns + tile_columns_ - 1) / tile_columns_;
  }
  static std::string scale_of(const ModelFolder& folder, const QuantizedMatrix& matrix) {
    const std::string other = matrix.part(kOtherScale);
    return folder.find(other) != nullptr ? other : matrix.part(kScale);
  }

  int64_t tile_rows_ = 0, tile_columns_ = 0;  // 0: there are none
};

std::shared_ptr<const QuantizedForm> fp8_form(const Json& config, const std::string& where) {
  return std::make_shared<Fp8Form>(config, where);
}

}  // namespace

void register_fp8() { checkpoints::quantized_forms().add("fp8", {fp8_form}); }

}  // namespace temper::foreign
