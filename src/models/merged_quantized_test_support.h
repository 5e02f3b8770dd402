#pragma once
#include <cmath>
#include <cstring>

#include "base/files.h"
#include "checkpoints/hf_folder.h"
#include "models/adapter.h"
#include "models/export.h"
#include "quant/number_format.h"
#include "quant/zero_points.h"
#include "tests/support/decoded.h"
#include "tests/support/made_up_amax.h"
#include "tests/support/op_testing.h"
#include "tests/support/tiny_model.h"

// Adapters that are merged into quantized folders, in the form of the folder.
namespace temper::models {

using checkpoints::MergedForm;
using checkpoints::ModelFolder;
using op_testing::Doubles;
using op_testing::values_of;
using quantizers::QuantizeOptions;
using quantizers::Quantizer;
using quantizers::QuantizerKind;

// Fake quantization of a weight; of integers with the scale that files have, where training divides by its
// inverse.
inline Doubles faked(const Quantizer& quantizer, const Tensor& value) {
  const quant::Format& format = quantizer.planned.format;
  const Tensor values = value.to(DType::kF32).reshape(quantizer.planned.values);
  if (quantizer.planned.has_zero_points())
    return values_of(quant::decode_with_zeros(
        format.element, quant::encode_with_zeros("", format.element, values, {quantizer.low, quantizer.amax}),
        DType::kF32));
  if (format.scaling != quant::Scaling::kIntegers) {
    const ops::BoundOps bound = op_testing::bind_kernel<ops::FakeQuantize>("eager", {DType::kF32, format});
    Tape tape(false);
    const ops::OfParameter how{.shape = values.shape(), .again = quantizers::second_rounding(quantizer)};
    return values_of(
        ops::fake_quantize_parameter(tape, bound, tape.constant(values), quantizer.amax, format, how).value);
  }
  const quant::Groups groups = quant::groups_of("", values.shape(), quantizer.amax.shape());
  Doubles all;
  for (int64_t i = 0; i < values.numel(); ++i) {
    const float amax =
        quantizer.amax.data<float>()[groups.first(i / groups.columns) + i % groups.columns / groups.width()];
    const float code =
        quant::round_to(format.element, values.data<float>()[i] * (format.element.largest / amax));
    all.push_back(code * (amax / format.element.largest));
  }
  return all;
}

inline bool same_bytes(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         std::memcmp(a.raw(), b.raw(), static_cast<size_t>(a.bytes())) == 0;
}

class MergedQuantized : public testing::Test {
 protected:
  // A quantized folder, an adapter of it, and both merged, in numbers and in codes.
  void make(const char* type, const QuantizeOptions& quantize, const LoraConfig& lora) {
    const TinyModel tiny{.type = type, .quantize = quantize, .sizes = few_to_export()};
    const auto model = tiny_model(tiny);
    set_made_up_amax(*model);
    export_model(*model, out_ / "base", "", form_);
    make_adapter(lora);
    merge(MergedForm::kPlain, "numbers");
    merge(MergedForm::kAsBase, "codes");
  }
  void make_adapter(const LoraConfig& lora) {
    const auto base = load_model(out_ / "base", {});
    const auto adapter = new_adapter(*base, lora, 1, "");
    for (size_t i = 0; i < adapter->parameters().size(); ++i) {
      const auto values = adapter->parameters()[i].value.values<float>();
      for (size_t k = 0; k < values.size(); ++k)
        values[k] += 0.2f * std::sin(static_cast<float>(k * 7 + i * 3 + 1));
    }
    save_adapter(*adapter, out_ / "adapter", "");
  }
  void merge(MergedForm form, const std::string& name) {
    merge_adapter(out_ / "adapter", out_ / "base", out_ / name, 1 << 30, form);
  }
  ModelFolder open(const std::string& name) const { return ModelFolder::open(out_ / name); }

  // Weights of which everything has changed are read back as the fake quantization of the merged numbers, all
  // others as the base's; returns how many are read so.
  int check_values(const QuantizeOptions& quantize, const std::set<std::string>& changed) {
    BuildOptions options;
    options.quantize = quantize;
    options.ops = ops::all_eager();
    const auto numbers = load_model(out_ / "numbers", options);
    set_made_up_amax(*numbers);
    const auto codes = load_model(out_ / "codes", {}), base = load_model(out_ / "base", {});
    int checked = 0;
    for (const Quantizer& each : numbers->decoder.quantizers().all()) {
      if (each.planned.of_input) continue;
      const std::string& name = each.planned.weight;
      const Doubles read = values_of(codes->decoder.parameters().value(name));
      const Tensor& merged = numbers->decoder.parameters().at(name).value;
      checked += changed.contains(name.substr(9)) ? 1 : 0;
      if (changed.contains(name.substr(9)))
        EXPECT_TRUE(read == faked(each, merged)) << name;
      else
        EXPECT_TRUE(read == values_of(base->decoder.parameters().value(name))) << name;
    }
    return checked;
  }

  TemporaryDirectory out_;
  ExportForm form_ = ExportForm::kModelopt;
};

}  // namespace temper::models
