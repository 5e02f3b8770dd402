#include <algorithm>

#include "base/error.h"
#include "foreign/words/worded_form.h"

// Folders of GPTQ (Frantar et al., "GPTQ: Accurate Post-Training Quantization for Generative Pre-trained
// Transformers", 2022), as AutoGPTQ and GPTQModel write them. Of the matrix X.weight [rows, columns] there
// are
//   X.qweight  I32 [columns · bits / 32, rows], X.qzeros I32 [groups, rows · bits / 32], X.scales [groups,
//   rows]
//              (foreign/words/quantized_words.h)
//   X.g_idx    I32 [columns], of most: the group of each column, in any order where desc_act is true
//   X.bias     [rows]: some writers give every module one, of zeros; it has no meaning then
// In format "gptq" zeros are stored less one, in "gptq_v2" as they are. Symmetric models have the same form.
namespace temper::foreign {
namespace {

constexpr int kBits[] = {2, 3, 4, 8};

class GptqForm : public WordedForm {
 public:
  GptqForm(const Json& config, const std::string& where) {
    group_ = group_of_config(config, where);
    bits_ = {bits_of_config(config, kBits, where)};
    name_ = fmt::format("gptq, {} bits", bits_.front());
    // Modules of other widths: that of each is in its shapes.
    if (const Json* dynamic = config.find("dynamic"); dynamic != nullptr && !dynamic->is_null())
      bits_.assign(std::begin(kBits), std::end(kBits));
    const Json* marlin = config.find("is_marlin_format");
    const Json* format = one_of(config, "checkpoint_format", "format");
    const Json plain("gptq"), second("gptq_v2");
    if ((marlin != nullptr && *marlin == Json(true)) ||
        (format != nullptr && *format != plain && *format != second))
      fail(
          "[{}] quantization_config: checkpoint_format is {}, expected one of [gptq, gptq_v2]; convert the "
          "model to one of them",
          where, format == nullptr ? "\"marlin\"" : format->dump());
    zeros_less_one_ = format == nullptr || *format == plain;
    const Json* words = config.find("pack_dtype");
    if (words != nullptr && !words->is_null() && *words != Json("int32"))
      fail("[{}] quantization_config: pack_dtype is {}, expected \"int32\"; pack the model so", where,
           words->dump());
  }

  std::string name() const override { return name_; }

  std::vector<std::string> parts(const ModelFolder& folder, const QuantizedMatrix& matrix) const override {
    std::vector<std::string> found = parts_with(folder, matrix, kEndings);
    if (!found.empty() && is_zero(folder, matrix.part(".bias"))) found.push_back(matrix.part(".bias"));
    return found;
  }

  std::vector<std::string> misfits(const ModelFolder& folder, const QuantizedMatrix& matrix) const override {
    MatrixCheck check(folder, matrix);
    std::vector<std::string>& found = check.found;
    std::vector<Shape> shapes;
    for (const int bits : bits_)
      if (matrix.columns * bits % 32 == 0 && matrix.rows * bits % 32 == 0)
        shapes.push_back(shape_in_words(WordsIn::kDown, bits, matrix.columns, matrix.rows));
    if (shapes.empty())
      return {fmt::format("'{}' is [{}, {}], which codes of {} bits do not pack in words of 32", matrix.name,
                          matrix.rows, matrix.columns, bits_.front())};
    if (!check(kCodes, kWords, shapes)) return found;
    const bool ordered = folder.find(matrix.part(kGroups)) != nullptr;
    const int64_t groups = ordered ? groups_of_scales(folder, matrix) : groups_of(matrix);
    if (!check(kScales, kFloats, {{groups, matrix.rows}})) return found;
    check(kZeros, kWords, {shape_in_words(WordsIn::kAcross, bits_of(folder, matrix), groups, matrix.rows)});
    if (ordered && check(kGroups, kWords, {{matrix.columns}})) check_groups(folder, matrix, groups, found);
    return found;
  }

  // Of columns whose groups are neighbours.
  WritesMatrix writer(const ModelFolder& folder, const QuantizedMatrix& matrix) const override {
    const WordedMatrix held = held_in(folder, matrix);
    if (held.groups.defined()) {
      const auto groups = held.groups.values<int32_t>();
      for (size_t c = 0; c < groups.size(); ++c)
        if (groups[c] != static_cast<int64_t>(c) / held.group) return nullptr;
    }
    return WordedForm::writer(folder, matrix);
  }

 private:
  WordedMatrix held_in(const ModelFolder& folder, const QuantizedMatrix& matrix) const override {
    WordedMatrix held = held_tensors(folder, matrix, group_);
    held.bits = bits_of(folder, matrix);
    held.zeros_less_one = zeros_less_one_;
    if (const std::string groups = matrix.part(kGroups); folder.find(groups) != nullptr)
      held.groups = folder.tensor(groups);
    return held;
  }

  static constexpr std::string_view kGroups = ".g_idx";
  static constexpr std::string_view kEndings[] = {kCodes, kZeros, kScales, kGroups};

  int64_t groups_of(const QuantizedMatrix& matrix) const {
    return group_ == 0 ? 1 : (matrix.columns + group_ - 1) / group_;
  }
  // A file that says which group each column belongs to may have any number of them.
  int64_t groups_of_scales(const ModelFolder& folder, const QuantizedMatrix& matrix) const {
    const TensorEntry* scales = folder.find(matrix.part(kScales));
    return scales != nullptr && scales->shape.size() == 2 ? scales->shape[0] : groups_of(matrix);
  }

  static int bits_of(const ModelFolder& folder, const QuantizedMatrix& matrix) {
    return static_cast<int>(folder.find(matrix.part(kCodes))->shape[0] * 32 / matrix.columns);
  }

  static void check_groups(const ModelFolder& folder, const QuantizedMatrix& matrix, int64_t groups,
                           std::vector<std::string>& found) {
    const Tensor held = folder.tensor(matrix.part(kGroups));
    const auto of_columns = held.values<int32_t>();
    for (size_t c = 0; c < of_columns.size(); ++c)
      if (of_columns[c] < 0 || of_columns[c] >= groups)
        return found.push_back(fmt::format("'{}' has {} for column {}, expected groups from 0 to {}",
                                           matrix.part(kGroups), of_columns[c], c, groups - 1));
  }

  static bool is_zero(const ModelFolder& folder, const std::string& name) {
    const TensorEntry* entry = folder.find(name);
    if (entry == nullptr ||
        std::find(std::begin(kFloats), std::end(kFloats), entry->dtype) == std::end(kFloats))
      return false;
    const Tensor held = folder.tensor(name);
    return visit_float(held.dtype(), [&]<class T>() {
      const auto values = held.values<T>();
      return std::all_of(values.begin(), values.end(), [](T x) { return static_cast<float>(x) == 0; });
    });
  }

  std::string name_;
  std::vector<int> bits_;  // that matrices may have
  int64_t group_ = 0;      // columns of a group; 0: all
  bool zeros_less_one_ = true;
};

std::shared_ptr<const QuantizedForm> gptq_form(const Json& config, const std::string& where) {
  return std::make_shared<GptqForm>(config, where);
}

}  // namespace

void register_gptq() { checkpoints::quantized_forms().add("gptq", {gptq_form, "quantize_config.json"}); }

}  // namespace temper::foreign
