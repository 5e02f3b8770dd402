#include "models/export.h"

#include <map>

#include "base/error.h"
#include "checkpoints/hf_folder.h"
#include "foreign/compressed_parts.h"
#include "foreign/modelopt_parts.h"
#include "models/export_checks.h"
#include "models/export_compressed.h"
#include "models/export_norms.h"
#include "primitives/fake_quantized.h"
#include "quant/number_format.h"
#include "quant/packing.h"
#include "quant/zero_points.h"

namespace temper::models {
namespace {

using checkpoints::TensorInfo;
using foreign::CodesIn;
using foreign::dtype_in_files;
using foreign::modelopt_scale;
using foreign::ScaleGroups;
using foreign::seen_as;
using quantizers::PlannedQuantizer;
using quantizers::Quantizer;

struct Module {
  const Quantizer* weight = nullptr;
  const Quantizer* input = nullptr;                    // null: read as it is
  const Quantizer *keys = nullptr, *values = nullptr;  // null: kept as they are
  ExportedForm form = {};
  bool is_folded = false;  // its factors are in the norm before it

  bool has_input_scale() const { return input != nullptr && input->planned.keeps_amax(); }
  bool has_input_zero() const { return has_input_scale() && input->planned.has_zero_points(); }
  bool scales_columns() const { return weight->columns.exist(); }
  bool has_pre_quant_scale() const { return scales_columns() && !is_folded; }
};

std::string module_name(const WeightSource& source) {
  return source.name.substr(0, source.name.size() - std::string_view(".weight").size());
}

// A tensor without dimensions.
Tensor scalar(float value) { return Tensor::from<float>(std::vector<float>{value}, {1}).reshape({}); }

// Of the values that share an amax, or the ends of a range.
quant::ZeroPoint zero_point_at(const Quantizer& of, int64_t place) {
  return quant::zero_point_of(of.planned.format.element, of.low.data<float>()[place],
                              of.amax.data<float>()[place]);
}
float scale_at(const Quantizer& of, int64_t place) {
  if (of.planned.has_zero_points()) return zero_point_at(of, place).step;
  return modelopt_scale(of.planned.format, of.amax.data<float>()[place]);
}

// Codes [rows, columns], packed along the columns, and what else an encoding finds.
quant::Encoded encoded(const Quantizer& weight, const std::string& name, const Tensor& values) {
  const PlannedQuantizer& planned = weight.planned;
  if (!planned.has_zero_points()) return quant::encode(name, planned.format, values, weight.amax);
  return {quant::encode_with_zeros(name, planned.format.element, values, {weight.low, weight.amax}).codes,
          {},
          {}};
}

// Scales of rows of a weight, as a file has them.
Tensor scales_of(const Quantizer& weight, const ExportedForm& form, int64_t row, int64_t rows,
                 const Shape& shape) {
  const quant::Groups groups =
      quant::groups_of(weight.planned.name, weight.planned.values, weight.amax.shape());
  const int64_t step = form.algorithm->groups == ScaleGroups::kWhole   ? rows
                       : form.algorithm->groups == ScaleGroups::kTiles ? weight.planned.kind.block
                                                                       : 1;
  const Tensor scales = Tensor::empty(shape, DType::kF32, MemoryTag::kWorkspace);
  float* to = scales.data<float>();
  for (int64_t r = row; r < row + rows; r += step)
    for (int64_t g = 0; g < groups.column_groups; ++g) *to++ = scale_at(weight, groups.first(r) + g);
  return scales;
}

// Zero points of rows of a weight, of its scales' shape.
Tensor zeros_of(const Quantizer& weight, int64_t row, int64_t rows, const Shape& shape) {
  const quant::Groups groups =
      quant::groups_of(weight.planned.name, weight.planned.values, weight.amax.shape());
  const Tensor zeros = Tensor::empty(shape, DType::kI8, MemoryTag::kWorkspace);
  auto* to = zeros.data<int8_t>();
  for (int64_t r = row; r < row + rows; ++r)
    for (int64_t g = 0; g < groups.column_groups; ++g)
      *to++ = static_cast<int8_t>(zero_point_at(weight, groups.first(r) + g).zero);
  return zeros;
}

class Encoder : public checkpoints::EncodedParameters {
 public:
  Encoder(const layers::Decoder& model, const FoldedNorms& norms) : dtype_(model.parameters().dtype()) {
    for (const Quantizer& each : model.quantizers().all()) {
      Module& module = modules_[each.planned.weight];
      quantizer_of(module, each.planned) = &each;
    }
    const auto forms = exported_forms(model.quantizers().plan(), model.parameters().table());
    for (auto& [name, module] : modules_) module.form = forms.at(name);
    for (const auto& [norm, quantizer] : norms) modules_.at(quantizer->planned.weight).is_folded = true;
  }

  const std::map<std::string, Module>& modules() const { return modules_; }

  std::vector<TensorInfo> list(const WeightSpec& spec) const override {
    const auto found = modules_.find(spec.name);
    if (found == modules_.end()) return {};
    const Module& module = found->second;
    const foreign::ModeloptAlgorithm& how = *module.form.algorithm;
    std::vector<TensorInfo> infos;
    for (const WeightSource& source : spec.sources) {
      const std::string name = module_name(source);
      infos.push_back({name + ".weight",
                       foreign::codes_shape(how.layout, how.element.bits, source.rows, spec.shape[1]),
                       dtype_in_files(how.dtype)});
      infos.push_back({name + ".weight_scale", scale_shape(module, source.rows, spec.shape[1]),
                       dtype_in_files(how.scale_dtype)});
      if (how.zeros)
        infos.push_back(
            {name + ".weight_zero_point", scale_shape(module, source.rows, spec.shape[1]), DType::kI8});
      if (how.second) infos.push_back({name + ".weight_scale_2", {}, DType::kF32});
      if (module.has_input_zero()) infos.push_back({name + ".input_zero_point", {}, DType::kI8});
      if (module.has_input_scale()) infos.push_back({name + ".input_scale", {}, DType::kF32});
      if (const auto [kept, scale] = kept_of(module, spec, source); kept != nullptr)
        infos.push_back({name + scale, {}, DType::kF32});
      if (module.has_pre_quant_scale()) infos.push_back({name + ".pre_quant_scale", {spec.shape[1]}, dtype_});
    }
    return infos;
  }

  std::vector<Tensor> encode(const WeightSpec& spec, const Tensor& value) const override {
    const Module& module = modules_.at(spec.name);
    const foreign::ModeloptAlgorithm& how = *module.form.algorithm;
    const PlannedQuantizer& planned = module.weight->planned;
    Tensor values = value.contiguous().reshape(planned.values);
    if (module.scales_columns()) values = primitives::scaled_columns(values, module.weight->columns.inverse);
    const quant::Encoded encoded = models::encoded(*module.weight, spec.name, values);
    const int64_t rows = spec.shape[0], columns = spec.shape[1];
    Tensor codes = encoded.codes;
    if (how.layout != CodesIn::kPairsOfColumns) codes = quant::unpacked_columns(codes, how.element.bits);
    codes = codes.reshape({rows, codes.numel() / rows});
    std::vector<Tensor> parts;
    int64_t row = 0;
    for (const WeightSource& source : spec.sources) {
      const Tensor own = codes.narrow(0, row, source.rows);
      parts.push_back(
          seen_as(how.layout == CodesIn::kPairsOfRows ? quant::packed_rows(source.name, own) : own,
                  dtype_in_files(how.dtype)));
      const Shape shape = scale_shape(module, source.rows, columns);
      if (planned.format.has_blocks())
        parts.push_back(seen_as(encoded.scales.reshape({rows, shape[1]}).narrow(0, row, source.rows),
                                dtype_in_files(how.scale_dtype)));
      else
        parts.push_back(scales_of(*module.weight, module.form, row, source.rows, shape));
      if (how.zeros) parts.push_back(zeros_of(*module.weight, row, source.rows, shape));
      if (how.second) parts.push_back(scalar(second_scale(*module.weight, row)));
      if (module.has_input_zero()) parts.push_back(input_zero(*module.input, row, rows));
      if (module.has_input_scale()) parts.push_back(scalar(input_scale(*module.input, row, rows)));
      if (const auto [kept, scale] = kept_of(module, spec, source); kept != nullptr)
        parts.push_back(scalar(*kept->amax.data<float>() / 448));
      if (module.has_pre_quant_scale()) parts.push_back(pre_quant_scale(module, row));
      row += source.rows;
    }
    return parts;
  }

 private:
  static const Quantizer*& quantizer_of(Module& module, const PlannedQuantizer& planned) {
    using enum quantizers::QuantizerRole;
    return planned.role == kWeight  ? module.weight
           : planned.role == kInput ? module.input
           : planned.role == kKeys  ? module.keys
                                    : module.values;
  }

  // What rounds the keys or values that a source gives, and the name of its scale.
  static std::pair<const Quantizer*, const char*> kept_of(const Module& module, const WeightSpec& spec,
                                                          const WeightSource& source) {
    if (spec.sources.size() != 3) return {nullptr, ""};
    const auto place = &source - spec.sources.data();
    return place == 1   ? std::pair{module.keys, ".k_scale"}
           : place == 2 ? std::pair{module.values, ".v_scale"}
                        : std::pair<const Quantizer*, const char*>{nullptr, ""};
  }

  static Shape scale_shape(const Module& module, int64_t rows, int64_t columns) {
    const foreign::ModeloptAlgorithm& how = *module.form.algorithm;
    const int64_t block = module.form.block > 0 ? module.form.block : how.block;
    return how.scale_shapes(rows, columns, block).front();
  }

  // Of the expert that a row is of.
  Tensor pre_quant_scale(const Module& module, int64_t row) const {
    const Tensor& whole = module.weight->columns.whole;
    const int64_t expert = whole.ndim() == 3 ? row / module.weight->planned.values[1] : 0,
                  columns = whole.dim(-1);
    return whole.reshape({whole.numel() / columns, columns})
        .narrow(0, expert, 1)
        .reshape({columns})
        .to(dtype_, MemoryTag::kWorkspace);
  }

  static float second_scale(const Quantizer& weight, int64_t row) {
    const bool again = weight.planned.rounds_again();
    const Tensor& amax = again ? weight.second : weight.amax;
    const quant::Groups groups = quant::groups_of(weight.planned.name, weight.planned.values, amax.shape());
    return modelopt_scale(again ? weight.planned.second_format() : weight.planned.format,
                          amax.data<float>()[groups.first(row)]);
  }

  // Of the expert that has this row, where each has its own.
  static float input_scale(const Quantizer& input, int64_t row, int64_t rows) {
    return scale_at(input, row / (rows / input.amax.numel()));
  }
  static Tensor input_zero(const Quantizer& input, int64_t row, int64_t rows) {
    const float zero = zero_point_at(input, row / (rows / input.amax.numel())).zero;
    return Tensor::from<int8_t>(std::vector<int8_t>{static_cast<int8_t>(zero)}, {1}).reshape({});
  }

  std::map<std::string, Module> modules_;  // by parameter
  DType dtype_;                            // of the model
};

ExportedModules listed(const Encoder& encoder, const WeightTable& table) {
  ExportedModules all;
  for (const WeightSpec& spec : table.specs()) {
    const auto found = encoder.modules().find(spec.name);
    for (const WeightSource& source : spec.sources) {
      if (found != encoder.modules().end() && found->second.keys != nullptr) all.float8_cache = true;
      const std::string module = module_name(source);
      if (found != encoder.modules().end())
        all.quantized.emplace_back(module, found->second.form);
      else if (spec.shape.ndim() == 2 && source.name.ends_with(".weight"))
        all.excluded.insert({module, table.name_in_files(module)});
    }
  }
  return all;
}

// Matrices that files have and no pass reads, as files and as classes of transformers name them.
void add_kept(const checkpoints::ModelFolder& folder, const WeightTable& table, ExportedModules& all) {
  for (const std::string& name : checkpoints::kept_names(folder, table))
    if (name.ends_with(".weight") && folder.find(name)->shape.size() == 2) {
      const std::string module = module_name({name, 0});
      all.excluded.insert(module);
      if (is_of_tower(name) && !name.starts_with("model.")) all.excluded.insert("model." + module);
    }
}

CompressedModule compressed_module(const Module& module) {
  if (module.input == nullptr) return {module.form};
  const PlannedQuantizer& input = module.input->planned;
  return {module.form, true, input.kind.sharing == quantizers::Sharing::kRow, input.has_zero_points()};
}

CompressedModules compressed(const Encoder& encoder, const WeightTable& table) {
  CompressedModules all;
  for (const auto& [weight, module] : encoder.modules())
    for (const WeightSource& source : table.find(weight)->sources)
      all.emplace(module_name(source), compressed_module(module));
  return all;
}

}  // namespace

void export_model(const Model& model, const std::string& folder, const std::string& files_from,
                  ExportForm form) {
  if (model.decoder.quantizers().empty())
    fail("[export] the model has no quantizers: nothing is to be encoded");
  if (!model.decoder.quantizers().ready())
    fail("[export] the quantizers have no amax: calibrate the model first");
  const auto& parameters = model.decoder.parameters();
  const FoldedNorms norms = folded_norms(model.decoder);
  const Encoder encoder(model.decoder, norms);
  checkpoints::SaveOptions options;
  std::optional<checkpoints::ModelFolder> read;
  if (!model.folder.empty() && parameters.table().keeps_some())
    options.kept = &read.emplace(checkpoints::ModelFolder::open(model.folder));
  ExportedModules all = listed(encoder, parameters.table());
  if (read) add_kept(*read, parameters.table(), all);
  const bool is_modelopt = form == ExportForm::kModelopt;
  for (const auto& [weight, module] : encoder.modules())
    if (is_modelopt && foreign::only_compressed(*module.form.algorithm))
      fail(
          "[export] {} is {} ({}), which nvidia-modelopt's folders have no tensors for: write --form "
          "compressed-tensors",
          module.weight->planned.name, module.weight->planned.formats(), module.form.algorithm->name);
  if (!is_modelopt && all.float8_cache)
    fail("[export] quantizers round the cache, which is written with --form modelopt only");
  if (!is_modelopt && model.decoder.quantizers().scale_columns())
    fail(
        "[export] columns have factors (_pre_quant_scale), which compressed-tensors has no tensor for: write "
        "--form modelopt");
  const CompressedModules modules = compressed(encoder, parameters.table());
  const CompressedParameters renamed(encoder, modules);
  Json config = config_in_files(model.config, model.decoder.config());
  config.set("quantization_config",
             is_modelopt ? quantization_config(all) : compressed_quantization_config(modules, all.excluded));
  options.dtype = parameters.dtype();
  options.original = files_from;
  options.encoded = &encoder;
  if (!is_modelopt) options.encoded = &renamed;
  if (is_modelopt) options.json_files = {{"hf_quant_config.json", hf_quant_config(all)}};
  const auto value_of = [&](const WeightSpec& spec) {
    const Tensor value = parameters.value(spec.name);
    const auto norm = norms.find(spec.name);
    return norm == norms.end() ? value
                               : folded_norm(value, *norm->second, model.decoder.config().norm_offset);
  };
  checkpoints::save_model(folder, parameters.table(), value_of, config, options);
}

}  // namespace temper::models
