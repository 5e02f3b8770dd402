#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "foreign/words/worded_form.h"

// Folders of AWQ (Lin et al., "AWQ: Activation-aware Weight Quantization for LLM Compression and
// Acceleration", 2023), version "gemm", as AutoAWQ writes them. Of the matrix X.weight [rows, columns] there
// are
//   X.qweight I32 [columns, rows / 8], X.qzeros I32 [groups, rows / 8], X.scales [groups, rows]
// (foreign/words/quantized_words.h). What was scaled for the activations is in the layer before it.
namespace temper::foreign {
namespace {

constexpr int kBits[] = {4};

class AwqForm : public WordedForm {
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
    MatrixCheck check(folder, matrix);
    check(kCodes, kWords, {{matrix.columns, matrix.rows / 8}});
    check(kZeros, kWords, {{groups, matrix.rows / 8}});
    check(kScales, kFloats, {{groups, matrix.rows}});
    return check.found;
  }

 private:
  WordedMatrix held_in(const ModelFolder& folder, const QuantizedMatrix& matrix) const override {
    WordedMatrix held = held_tensors(folder, matrix, group_);
    held.codes_in = held.zeros_in = WordsIn::kAwqAcross;
    return held;
  }

  static constexpr std::string_view kEndings[] = {kCodes, kZeros, kScales};

  int64_t group_ = 0;  // columns of a group; 0: all
};

std::shared_ptr<const QuantizedForm> awq_form(const Json& config, const std::string& where) {
  return std::make_shared<AwqForm>(config, where);
}

}  // namespace

void register_awq() { checkpoints::quantized_forms().add("awq", {awq_form, "quant_config.json"}); }

}  // namespace temper::foreign
