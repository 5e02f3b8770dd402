#include "foreign/bitsandbytes/nf4_writer.h"

#include "base/json/json.h"
#include "quant/nf4.h"

namespace temper::foreign {
namespace {

// The longest number that Json prints, so that the text's length is known before the number.
constexpr size_t kLongestNumber = 32;

class Nf4Writer : public MatrixWriter {
 public:
  Nf4Writer(const QuantizedMatrix& matrix, bool double_quantization, std::string dtype)
      : matrix_(matrix), double_(double_quantization), dtype_(std::move(dtype)) {}

  std::vector<TensorInfo> list() const override {
    const int64_t count = matrix_.rows * matrix_.columns, blocks = parts_of(count, quant::kNf4Block);
    std::vector<TensorInfo> infos{
        {matrix_.name, {count / 2, 1}, DType::kU8},
        {matrix_.name + ".absmax", {blocks}, double_ ? DType::kU8 : DType::kF32},
        {matrix_.name + ".quant_map", {static_cast<int64_t>(quant::kNf4Numbers.size())}, DType::kF32},
        {matrix_.name + ".quant_state.bitsandbytes__nf4",
         {static_cast<int64_t>(state(0).size())},
         DType::kU8}};
    if (!double_) return infos;
    infos.push_back(
        {matrix_.name + ".nested_absmax", {parts_of(blocks, quant::kNf4ScaleBlock)}, DType::kF32});
    infos.push_back({matrix_.name + ".nested_quant_map",
                     {static_cast<int64_t>(quant::nf4_scale_numbers().size())},
                     DType::kF32});
    return infos;
  }

  std::vector<Tensor> encode(const Tensor& values, float) const override {
    const quant::Nf4 encoded = quant::encode_nf4(matrix_.name, values, double_);
    const std::string text = state(encoded.offset);
    std::vector<Tensor> parts{encoded.codes.reshape({encoded.codes.numel(), 1}),
                              double_ ? encoded.scale_codes : encoded.scales, numbers(quant::kNf4Numbers),
                              Tensor::from(std::vector<uint8_t>(text.begin(), text.end()))};
    if (!double_) return parts;
    parts.push_back(encoded.scales);
    parts.push_back(numbers(quant::nf4_scale_numbers()));
    return parts;
  }

 private:
  static int64_t parts_of(int64_t size, int64_t part) { return (size + part - 1) / part; }
  template <size_t kCount>
  static Tensor numbers(const std::array<float, kCount>& all) {
    return Tensor::from(std::vector<float>(all.begin(), all.end()));
  }

  std::string state(float offset) const {
    Json::Object json{{"quant_type", "nf4"},
                      {"blocksize", quant::kNf4Block},
                      {"dtype", dtype_},
                      {"shape", Json::Array{matrix_.rows, matrix_.columns}}};
    if (!double_) return Json(std::move(json)).dump();
    json.emplace_back("nested_blocksize", quant::kNf4ScaleBlock);
    json.emplace_back("nested_dtype", "float32");
    json.emplace_back("nested_offset", double{offset});
    const std::string number = format_double(double{offset});
    return Json(std::move(json)).dump() + std::string(kLongestNumber - number.size(), ' ');
  }

  QuantizedMatrix matrix_;
  bool double_;
  std::string dtype_;
};

}  // namespace

WritesMatrix nf4_writer(const QuantizedMatrix& matrix, bool double_quantization, const std::string& dtype) {
  return std::make_unique<Nf4Writer>(matrix, double_quantization, dtype);
}

}  // namespace temper::foreign
