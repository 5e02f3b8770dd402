#include <fmt/ranges.h>

#include <algorithm>
#include <mutex>

#include "base/error.h"
#include "base/log.h"
#include "foreign/compressed_parts.h"
#include "foreign/compressed_tensors/compressed_blocks.h"
#include "foreign/compressed_tensors/compressed_inputs.h"
#include "foreign/compressed_tensors/scale_grid.h"
#include "foreign/matrix_writers.h"
#include "foreign/read_activations.h"

// Folders of compressed-tensors (llm-compressor). Of the matrix X.weight [rows, columns] there are
//   float-quantized, int-quantized, naive-quantized:
//     X.weight         E4M3 or I8 [rows, columns]
//   pack-quantized:
//     X.weight_packed  I32 [rows, columns · bits / 32]: integers of 4 or 8 bits with 2^(bits - 1) added
//     X.weight_shape   I64 [2]: rows and columns
//     X.weight_g_idx   I32 [columns], of some: the group of each column; -1 everywhere: as if it were not
//                      there
// and X.weight_scale: one, one for each row, for each group of columns of a row, or for each tile (float
// formats: block_structure). X.weight_zero_point is what is subtracted from codes: I8 of the scales' shape,
// or of pack-quantized I32 [rows · bits / 32, column groups], packed along rows with 2^(bits - 1) added.
// Formats of blocks with narrow scales are in checkpoints/compressed_blocks.h.
namespace temper::foreign {
namespace {

constexpr std::string_view kCompressedFormats[] = {
    "float-quantized",      "int-quantized",        "naive-quantized", "pack-quantized",
    "nvfp4-pack-quantized", "mxfp4-pack-quantized", "mxfp8-quantized", "mixed-precision"};

bool is_readable(const Json& format) {
  return format.is_string() && std::find(std::begin(kCompressedFormats), std::end(kCompressedFormats),
                                         format.as_string()) != std::end(kCompressedFormats);
}

class CompressedForm : public QuantizedForm {
 public:
  CompressedForm(const Json& config, const std::string& where) {
    const Json* format = config.find("format");
    if (format == nullptr || !is_readable(*format))
      fail("[{}] quantization_config: format is {}, expected one of [{}]; compress the model otherwise",
           where, format == nullptr ? "missing" : format->dump(), fmt::join(kCompressedFormats, ", "));
    name_ = "compressed-tensors " + format->as_string();
    const Json* groups = config.find("config_groups");
    if (groups == nullptr || !groups->is_object()) return;
    for (const auto& [group, how] : groups->as_object()) {
      read_group(how, fmt::format("{}] [{}", where, group));
      inputs_.emplace_back(how, fmt::format("[{}] [{}]", where, group));
    }
    // Names decide over kinds of modules.
    std::ranges::stable_sort(inputs_, {}, &CompressedInputs::is_of_a_kind);
  }

  std::string name() const override { return name_; }

  std::vector<std::string> parts(const ModelFolder& folder, const QuantizedMatrix& matrix) const override {
    const TensorEntry* entry = folder.find(matrix.name);
    const bool codes = entry != nullptr && (entry->dtype == "F8_E4M3" || entry->dtype == "I8");
    if (!codes && !is_packed(folder, matrix) && folder.find(matrix.part(kScale)) == nullptr) return {};
    return parts_with(folder, matrix, kEndings);
  }

  std::vector<std::string> misfits(const ModelFolder& folder, const QuantizedMatrix& matrix) const override {
    if (in_compressed_blocks(folder, matrix)) return misfits_of_compressed_blocks(folder, matrix);
    MatrixCheck check(folder, matrix);
    std::vector<std::string>& found = check.found;
    const bool packed = is_packed(folder, matrix);
    if (packed)
      check(kPacked, kWords,
            {codes_shape(CodesIn::kWords, 4, matrix.rows, matrix.columns),
             codes_shape(CodesIn::kWords, 8, matrix.rows, matrix.columns)});
    else
      check(".weight", kBytes, {{matrix.rows, matrix.columns}});
    const std::optional<Grid> grid = grid_of(folder, matrix);
    if (!grid) check(kScale, kFloats, grids_.shapes(matrix.rows, matrix.columns));
    if (!found.empty()) return found;
    if (folder.find(matrix.part(kZero)) != nullptr) {
      constexpr std::string_view kSmall[] = {"I8"};
      const int64_t words = packed ? (grid->down * bits_of(folder, matrix) + 31) / 32 : 0;
      if (packed)
        check(kZero, kWords, {{words, grid->across}});
      else
        check(kZero, kSmall, {{grid->down, grid->across}, {grid->down * grid->across}});
    }
    if (folder.find(matrix.part(kGroups)) != nullptr) check_groups(folder, matrix, *grid, found);
    return found;
  }

  Tensor rows(const ModelFolder& folder, const QuantizedMatrix& matrix, int64_t first,
              int64_t count) const override {
    if (in_compressed_blocks(folder, matrix)) return rows_of_compressed_blocks(folder, matrix, first, count);
    const bool packed = is_packed(folder, matrix);
    const std::string name = matrix.part(packed ? kPacked : ".weight");
    const Grid grid = *grid_of(folder, matrix);
    CodedMatrix coded;
    coded.codes = folder.tensor(name);
    coded.layout = packed ? CodesIn::kWords : CodesIn::kBytes;
    coded.offset = packed;
    coded.element = coded.codes.dtype() == DType::kF8E4M3
                        ? quant::kE4M3
                        : quant::integer_element(packed ? bits_of(folder, matrix) : 8, false, false);
    coded.scales = folder.tensor(matrix.part(kScale)).reshape({grid.down, grid.across});
    coded.group_rows = grid.rows;
    coded.group_columns = grid.columns;
    if (folder.find(matrix.part(kZero)) != nullptr) coded.zeros = zeros_of(folder, matrix, grid, packed);
    if (folder.find(matrix.part(kGroups)) != nullptr) {
      const Tensor groups = folder.tensor(matrix.part(kGroups));
      if (groups.data<int32_t>()[0] >= 0) coded.groups_of_columns = groups;
    }
    Tensor read = decoded_rows(coded, matrix.columns, first, count);
    release_rows(folder, name, coded, first, count);
    return read;
  }

  RoundedActivations activations(const ModelFolder& folder, const QuantizedMatrix& matrix) const override {
    RoundedActivations found{.kept = kept_values(folder, matrix)};
    const auto group = std::ranges::find_if(
        inputs_, [&](const CompressedInputs& each) { return each.is_of(matrix.part("")); });
    if (group == inputs_.end()) {
      if (std::ranges::any_of(inputs_, &CompressedInputs::rounds)) tell_unnamed(folder, matrix);
      return found;
    }
    found.input = group->of(folder, matrix);
    found.unread = group->unread();
    return found;
  }

  // Of matrices whose columns are in order.
  WritesMatrix writer(const ModelFolder& folder, const QuantizedMatrix& matrix) const override {
    if (folder.find(matrix.part(kGroups)) != nullptr) return nullptr;
    const ModeloptChoice form =
        in_compressed_blocks(folder, matrix)         ? choice_of_compressed_blocks(folder, matrix)
        : folder.find(matrix.part(kZero)) != nullptr ? choice_with_zeros(folder, matrix)
                                                     : choice_for(folder, matrix);
    return form.algorithm == nullptr ? nullptr : compressed_writer(form, matrix);
  }

 private:
  static constexpr std::string_view kPacked = ".weight_packed", kScale = ".weight_scale",
                                    kZero = ".weight_zero_point", kGroups = ".weight_g_idx",
                                    kSize = ".weight_shape";
  static constexpr std::string_view kEndings[] = {".weight",
                                                  kPacked,
                                                  kScale,
                                                  kZero,
                                                  kGroups,
                                                  kSize,
                                                  ".input_scale",
                                                  ".input_zero_point",
                                                  ".output_scale",
                                                  ".k_scale",
                                                  ".v_scale",
                                                  kCompressedGlobalScale,
                                                  ".input_global_scale"};
  static constexpr std::string_view kFloats[] = {"F32", "BF16", "F16"}, kBytes[] = {"F8_E4M3", "I8"},
                                    kWords[] = {"I32"};

  void tell_unnamed(const ModelFolder& folder, const QuantizedMatrix& matrix) const {
    std::call_once(reported_unnamed_, [&] {
      log_warning(
          fmt::format("[{}] '{}' is quantized, but among the targets of no group of quantization_config: its "
                      "inputs are not rounded (reported once)",
                      folder.path(), matrix.name));
    });
  }

  void read_group(const Json& how, const std::string& where) {
    if (const Json* format = how.find("format");
        format != nullptr && !format->is_null() && !is_readable(*format))
      fail("[{}] format is {}, expected one of [{}]; compress the model otherwise", where, format->dump(),
           fmt::join(kCompressedFormats, ", "));
    const Json* weights = how.find("weights");
    const Json* tile =
        weights == nullptr || !weights->is_object() ? nullptr : weights->find("block_structure");
    if (tile != nullptr && !tile->is_null()) grids_.add_tile(*tile, where);
  }

  ModeloptChoice choice_for(const ModelFolder& folder, const QuantizedMatrix& matrix) const {
    const Grid grid = *grid_of(folder, matrix);
    const bool whole = grid.down == 1 && grid.across == 1,
               rows = grid.down == matrix.rows && grid.across == 1;
    if (is_packed(folder, matrix)) {
      if (bits_of(folder, matrix) == 4 && grid.down == matrix.rows)
        return {find_modelopt_algorithm("W4A16_AWQ"), grid.columns};
      return {rows ? find_modelopt_algorithm("W8A16") : nullptr};
    }
    if (folder.find(matrix.name)->dtype == "I8")
      return {rows ? find_modelopt_algorithm("W8A8_SQ_PER_CHANNEL") : nullptr};
    if (const auto tiles =
            grids_.of_tiles(folder.find(matrix.part(kScale))->shape, matrix.rows, matrix.columns))
      return {tiles->rows == tiles->columns ? find_modelopt_algorithm("fp8_pb_wo") : nullptr, tiles->rows};
    if (!whole && !rows) return {};
    return {find_modelopt_algorithm(whole ? "FP8" : "FP8_PER_CHANNEL_PER_TOKEN")};
  }

  // None where all zero points are 0: files may have them of symmetric integers, too, of which readers expect
  // no others.
  ModeloptChoice choice_with_zeros(const ModelFolder& folder, const QuantizedMatrix& matrix) const {
    const Grid grid = *grid_of(folder, matrix);
    const bool packed = is_packed(folder, matrix), rows = grid.across == 1;
    if (grid.down != matrix.rows || (!packed && !rows)) return {};
    const Tensor zeros = zeros_of(folder, matrix, grid, packed);
    const auto all = zeros.values<float>();
    if (std::all_of(all.begin(), all.end(), [](float zero) { return zero == 0; })) return {};
    const bool narrow = packed && bits_of(folder, matrix) == 4;
    return {find_compressed_algorithm(!packed  ? "W8A8_ASYM"
                                      : narrow ? rows ? "W4A16_ASYM per channel" : "W4A16_ASYM"
                                      : rows   ? "W8A16_ASYM"
                                               : "W8A16_ASYM in blocks"),
            grid.columns};
  }

  static bool is_packed(const ModelFolder& folder, const QuantizedMatrix& matrix) {
    return folder.find(matrix.part(kPacked)) != nullptr;
  }
  static int bits_of(const ModelFolder& folder, const QuantizedMatrix& matrix) {
    return folder.find(matrix.part(kPacked))->shape[1] == (matrix.columns * 4 + 31) / 32 ? 4 : 8;
  }

  // The grid that the scales' shape means; nothing where it means none.
  std::optional<Grid> grid_of(const ModelFolder& folder, const QuantizedMatrix& matrix) const {
    const TensorEntry* scales = folder.find(matrix.part(kScale));
    if (scales == nullptr ||
        std::find(std::begin(kFloats), std::end(kFloats), scales->dtype) == std::end(kFloats))
      return std::nullopt;
    return grids_.of(scales->shape, matrix.rows, matrix.columns);
  }

  static void check_groups(const ModelFolder& folder, const QuantizedMatrix& matrix, const Grid& grid,
                           std::vector<std::string>& found) {
    const Shape shapes[] = {{matrix.columns}};
    if (auto misfit = misfit_of(folder, matrix.part(kGroups), kWords, shapes))
      return found.push_back(std::move(*misfit));
    const Tensor held = folder.tensor(matrix.part(kGroups));
    const auto groups = held.values<int32_t>();
    const bool none = std::all_of(groups.begin(), groups.end(), [](int32_t g) { return g == -1; });
    const auto is_group = [&](int32_t g) { return g >= 0 && g < grid.across; };
    if (!none && !std::all_of(groups.begin(), groups.end(), is_group))
      found.push_back(
          fmt::format("'{}' has groups that are not from 0 to {}", matrix.part(kGroups), grid.across - 1));
  }

  static Tensor zeros_of(const ModelFolder& folder, const QuantizedMatrix& matrix, const Grid& grid,
                         bool packed) {
    const Tensor read = Tensor::empty({grid.down, grid.across}, DType::kF32, MemoryTag::kWorkspace);
    const Tensor held = folder.tensor(matrix.part(kZero));
    const int bits = packed ? bits_of(folder, matrix) : 8, in_word = 32 / bits;
    for (int64_t r = 0; r < grid.down; ++r)
      for (int64_t g = 0; g < grid.across; ++g) {
        int zero = 0;
        if (packed) {
          const auto word = static_cast<uint32_t>(held.data<int32_t>()[r / in_word * grid.across + g]);
          zero = static_cast<int>(word >> (r % in_word * bits) & ((1u << bits) - 1)) - (1 << (bits - 1));
        } else {
          zero = held.data<int8_t>()[r * grid.across + g];
        }
        read.data<float>()[r * grid.across + g] = static_cast<float>(zero);
      }
    return read;
  }

  std::string name_;
  ScaleGrids grids_;
  std::vector<CompressedInputs> inputs_;
  mutable std::once_flag reported_unnamed_;
};

std::shared_ptr<const QuantizedForm> compressed_tensors_form(const Json& config, const std::string& where) {
  return std::make_shared<CompressedForm>(config, where);
}

}  // namespace

void register_compressed_tensors() {
  checkpoints::quantized_forms().add("compressed-tensors", {compressed_tensors_form});
}

}  // namespace temper::foreign
