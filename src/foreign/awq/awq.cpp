#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "foreign/words/words_writer.h"

// Folders of AWQ (Lin et al., "AWQ: Activation-aware Weight Quantization for LLM Compression and
// Acceleration", 2023), version "gemm", as AutoAWQ writes them. Of the matrix X.weight [rows, columns] there
// are
//   X.qweight I32 [columns, rows / 8], X.qzeros I32 [groups, rows / 8], X.scales [groups, rows]
// (foreign/words/quantized_words.h). What was scaled for the activations is in the layer before it.
namespace temper::foreign {
namespace {

constexpr int kBits[] = {4};

class AwqForm : public QuantizedForm {
 public:
  AwqForm(const Json& config, const std::string& where) {
    bits_of_config(config, kBits, where);
    group_ = group_of_config(config, where);
    const Json* version = one_of(config, "version", "format");
    std::string name = version == nullptr ? "gemm" : version->is_string() ? version->as_string() : "";
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
    if (name != "gemm")
      fail(
          "[{}] quantization_config: version is {}, whose codes lie otherwise, expected \"gemm\"; quantize "
          "the model in that version",
          where, version->dump());
  }

  std::string name() const override { return "awq"; }

  std::vector<std::string> parts(const ModelFolder& folder, const QuantizedMatrix& matrix) const override {
    return parts_with(folder, matrix, kEndings);
  }

  std::vector<std::string> misfits(const ModelFolder& folder, const QuantizedMatrix& matrix) const override {
    const int64_t group = group_ > 0 ? group_ : matrix.columns;
    if (matrix.rows % 8 != 0 || matrix.columns % group != 0)
      return {fmt::format("'{}' is [{}, {}], expected rows in eights and columns in groups of {}",
                          matrix.name, matrix.rows, matrix.columns, group)};
    const int64_t groups = matrix.columns / group;
    std::vector<std::string> found;
    const auto check = [&](std::string_view ending, std::span<const std::string_view> dtypes,
                           const Shape& shape) {
      if (auto misfit = misfit_of(folder, matrix.part(ending), dtypes, {&shape, 1}))
        found.push_back(std::move(*misfit));
    };
    check(kCodes, kWords, {matrix.columns, matrix.rows / 8});
    check(kZeros, kWords, {groups, matrix.rows / 8});
    check(kScales, kFloats, {groups, matrix.rows});
    return found;
  }

  Tensor rows(const ModelFolder& folder, const QuantizedMatrix& matrix, int64_t first,
              int64_t count) const override {
    const WordedMatrix held = held_in(folder, matrix);
    Tensor read = decoded_rows(held, matrix.columns, first, count);
    folder.release(matrix.part(kCodes), held.codes);
    return read;
  }

  WritesMatrix writer(const ModelFolder& folder, const QuantizedMatrix& matrix) const override {
    return words_writer(matrix, words_form_of(held_in(folder, matrix), matrix.rows));
  }

 private:
  WordedMatrix held_in(const ModelFolder& folder, const QuantizedMatrix& matrix) const {
    WordedMatrix held{folder.tensor(matrix.part(kCodes)), folder.tensor(matrix.part(kZeros)),
                      folder.tensor(matrix.part(kScales))};
    held.codes_in = held.zeros_in = WordsIn::kAwqAcross;
    held.group = group_ > 0 ? group_ : matrix.columns;
    return held;
  }

  static constexpr std::string_view kCodes = ".qweight", kZeros = ".qzeros", kScales = ".scales";
  static constexpr std::string_view kEndings[] = {kCodes, kZeros, kScales};
  static constexpr std::string_view kFloats[] = {"F16", "BF16", "F32"}, kWords[] = {"I32"};

  int64_t group_ = 0;  // columns of a group; 0: all
};

std::shared_ptr<const QuantizedForm> awq_form(const Json& config, const std::string& where) {
  return std::make_shared<AwqForm>(config, where);
}

}  // namespace

void register_awq();
void register_awq() { checkpoints::quantized_forms().add("awq", {awq_form, "quant_config.json"}); }

}  // namespace temper::foreign
