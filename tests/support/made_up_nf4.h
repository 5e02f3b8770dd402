#pragma once
#include "checkpoints/hf_folder.h"
#include "models/model.h"
#include "quant/nf4.h"

namespace temper {

// What bitsandbytes writes of matrices, with codes and magnitudes that are made up: most blocks have no code
// of -1 or 1, so that rounding their values again would give others.
class MadeUpNf4 : public checkpoints::EncodedParameters {
 public:
  MadeUpNf4(bool nested, int64_t block) : nested_(nested), block_(block) {}

  std::vector<checkpoints::TensorInfo> list(const WeightSpec& spec) const override {
    std::vector<checkpoints::TensorInfo> infos;
    if (!spec.quantize) return infos;
    for (const WeightSource& source : spec.sources) {
      const std::vector<std::pair<std::string, Tensor>> parts = parts_of(source, spec.shape[1]);
      for (const auto& [ending, tensor] : parts)
        infos.push_back({source.name + ending, tensor.shape(), tensor.dtype()});
    }
    return infos;
  }
  std::vector<Tensor> encode(const WeightSpec& spec, const Tensor&) const override {
    std::vector<Tensor> all;
    for (const WeightSource& source : spec.sources)
      for (const auto& [ending, tensor] : parts_of(source, spec.shape[1])) all.push_back(tensor);
    return all;
  }

 private:
  static Tensor letters(const std::string& text) {
    return Tensor::from(std::vector<uint8_t>(text.begin(), text.end()));
  }

  std::vector<std::pair<std::string, Tensor>> parts_of(const WeightSource& source, int64_t columns) const {
    const int64_t count = source.rows * columns, blocks = (count + block_ - 1) / block_;
    std::vector<uint8_t> codes, scale_codes;
    std::vector<float> scales;
    const auto seed = static_cast<uint32_t>(std::hash<std::string>{}(source.name));
    const auto number = [&](uint32_t i) { return (i * 2654435761u + seed) * 2246822519u >> 8; };
    // Codes from 1 to 14, two in a byte.
    for (uint32_t i = 0; i < (count + 1) / 2; ++i)
      codes.push_back(static_cast<uint8_t>((1 + number(i) % 14) << 4 | (1 + number(i + 77) % 14)));
    for (uint32_t i = 0; i < blocks; ++i) scale_codes.push_back(static_cast<uint8_t>(number(i)));
    for (uint32_t i = 0; i < blocks; ++i) scales.push_back(0.01f * static_cast<float>(1 + number(i) % 9));
    const auto& numbers = quant::kNf4Numbers;
    const auto& of_scales = quant::nf4_scale_numbers();
    std::vector<std::pair<std::string, Tensor>> parts;
    if (nested_) scales.resize(static_cast<size_t>((blocks + 255) / 256));
    parts.emplace_back(nested_ ? ".nested_absmax" : ".absmax", Tensor::from(scales));
    parts.emplace_back(".quant_map", Tensor::from(std::vector<float>(numbers.begin(), numbers.end())));
    if (nested_)
      parts.emplace_back(".nested_quant_map",
                         Tensor::from(std::vector<float>(of_scales.begin(), of_scales.end())));
    parts.emplace_back("", Tensor::from(codes).reshape({(count + 1) / 2, 1}));
    if (nested_) parts.emplace_back(".absmax", Tensor::from(scale_codes));
    parts.emplace_back(
        ".quant_state.bitsandbytes__nf4",
        letters(fmt::format(
            R"({{"quant_type": "nf4", "blocksize": {}, "dtype": "float32", "shape": [{}, {}]{}}})", block_,
            source.rows, columns, nested_ ? R"(, "nested_blocksize": 256, "nested_offset": 0.0625)" : "")));
    return parts;
  }

  bool nested_;
  int64_t block_;
};

// The model's folder as bitsandbytes writes it, with such codes.
inline void save_made_up_nf4(const models::Model& model, const std::string& folder, bool nested,
                             int64_t block) {
  Json config = model.config;
  config.set("quantization_config",
             Json::parse(R"({"quant_method": "bitsandbytes", "load_in_4bit": true})", ""));
  const MadeUpNf4 made_up(nested, block);
  checkpoints::SaveOptions options;
  options.dtype = DType::kF32;
  options.encoded = &made_up;
  const auto& parameters = model.decoder.parameters();
  checkpoints::save_model(
      folder, parameters.table(), [&](const WeightSpec& spec) { return parameters.value(spec.name); }, config,
      options);
}

}  // namespace temper
