#include <cctype>
#include <map>

#include "base/error.h"
#include "base/text.h"
#include "foreign/matrix_writers.h"
#include "foreign/read_activations.h"

namespace temper::foreign {
namespace {

constexpr const char* kGroupSize = "group_size";

bool is_codes(const TensorEntry* entry) {
  return entry != nullptr && (entry->dtype == "F8_E4M3" || entry->dtype == "U8" || entry->dtype == "I8");
}

ModeloptChoice choice_of(const Json& config, const std::string& where) {
  const Json* name = config.is_object() ? config.find("quant_algo") : nullptr;
  const ModeloptAlgorithm* algorithm =
      name != nullptr && name->is_string() ? find_modelopt_algorithm(name->as_string()) : nullptr;
  if (algorithm == nullptr) {
    std::vector<std::string> readable;
    for (const ModeloptAlgorithm& each : modelopt_algorithms()) readable.emplace_back(each.name);
    fail("[{}] quant_algo is {}, expected one of [{}] or MIXED_PRECISION; quantize the model otherwise",
         where, name == nullptr ? "missing" : name->dump(), join(readable));
  }
  int64_t block = algorithm->block;
  if (const Json* size = config.find(kGroupSize); size != nullptr && !size->is_null()) {
    if (!size->is_int() || size->as_int() < 1 || size->as_int() > 1'000'000)
      fail("[{}] group_size is {}, expected the columns of a block", where, size->dump());
    if (algorithm->groups == ScaleGroups::kBlocks) block = size->as_int();
  }
  return {algorithm, block};
}

// The groups that readers of compressed-tensors' configuration look at describe the same numbers.
void check_groups(const Json& config, const ModeloptChoice& choice, const std::string& where) {
  const ModeloptAlgorithm& algorithm = *choice.algorithm;
  const Json* groups = config.find("config_groups");
  if (groups == nullptr || !groups->is_object()) return;
  for (const auto& [name, group] : groups->as_object()) {
    const Json* weights = group.is_object() ? group.find("weights") : nullptr;
    const Json* bits = weights != nullptr && weights->is_object() ? weights->find("num_bits") : nullptr;
    if (bits != nullptr && bits->is_int() && bits->as_int() != algorithm.element.bits)
      fail(
          "[{}] quant_algo is {}, whose weights have {} bits, but {} of config_groups has num_bits {}; one "
          "of "
          "them is wrong: write the folder again",
          where, algorithm.name, algorithm.element.bits, name, bits->dump());
    const Json* size = weights != nullptr && weights->is_object() ? weights->find(kGroupSize) : nullptr;
    if (algorithm.groups == ScaleGroups::kBlocks && size != nullptr && size->is_int() &&
        size->as_int() != choice.block)
      fail(
          "[{}] quant_algo is {} in blocks of {}, but {} of config_groups has group_size {}; one of them is "
          "wrong: write the folder again",
          where, algorithm.name, choice.block, name, size->dump());
  }
}

class ModeloptForm : public QuantizedForm {
 public:
  ModeloptForm(const Json& config, const std::string& where) {
    const Json* name = config.is_object() ? config.find("quant_algo") : nullptr;
    const Json* layers = config.is_object() ? config.find("quantized_layers") : nullptr;
    if (name != nullptr && *name == Json("MIXED_PRECISION")) {
      name_ = "modelopt MIXED_PRECISION";
      if (layers == nullptr || !layers->is_object())
        fail("[{}] quant_algo is MIXED_PRECISION, but quantized_layers, the quant_algo of each, is missing",
             where);
      for (const auto& [module, how] : layers->as_object())
        modules_.emplace(module, choice_of(how, fmt::format("{}] [{}", where, module)));
    } else {
      all_ = choice_of(config, where);
      check_groups(config, all_, where);
      name_ = fmt::format("modelopt {}", all_.algorithm->name);
    }
  }

  std::string name() const override { return name_; }

  std::vector<std::string> parts(const ModelFolder& folder, const QuantizedMatrix& matrix) const override {
    if (!is_codes(folder.find(matrix.name)) && folder.find(matrix.part(kScale)) == nullptr) return {};
    return parts_with(folder, matrix, kEndings);
  }

  std::vector<std::string> misfits(const ModelFolder& folder, const QuantizedMatrix& matrix) const override {
    const ModeloptChoice choice = choice_for(matrix);
    if (choice.algorithm == nullptr)
      return {fmt::format("'{}' has codes, but quantized_layers does not name it", matrix.name)};
    const ModeloptAlgorithm& how = *choice.algorithm;
    MatrixCheck check(folder, matrix);
    std::vector<std::string>& found = check.found;
    if (how.groups == ScaleGroups::kBlocks && matrix.columns % choice.block != 0)
      found.push_back(fmt::format("'{}' is in blocks of {}, but has {} columns", matrix.name, choice.block,
                                  matrix.columns));
    if (how.layout == CodesIn::kPairsOfRows && matrix.rows % 2 != 0)
      found.push_back(fmt::format("'{}' has codes of pairs of rows, but {} rows", matrix.name, matrix.rows));
    check(".weight", {&how.dtype, 1},
          {codes_shape(how.layout, how.element.bits, matrix.rows, matrix.columns)});
    check(kScale, {&how.scale_dtype, 1}, how.scale_shapes(matrix.rows, matrix.columns, choice.block));
    if (how.second)
      check(kSecond, kFloats, {{}, {1}});
    else if (folder.find(matrix.part(kSecond)) != nullptr)
      found.push_back(fmt::format("'{}' is there, but quant_algo {} has no second scale",
                                  matrix.part(kSecond), how.name));
    if (folder.find(matrix.part(kBefore)) != nullptr) check(kBefore, kFloats, {{matrix.columns}});
    return found;
  }

  Tensor rows(const ModelFolder& folder, const QuantizedMatrix& matrix, int64_t first,
              int64_t count) const override {
    const ModeloptChoice choice = choice_for(matrix);
    const ModeloptAlgorithm& how = *choice.algorithm;
    const int64_t width = how.groups == ScaleGroups::kBlocks || how.groups == ScaleGroups::kTiles
                              ? choice.block
                              : matrix.columns;
    CodedMatrix coded{folder.tensor(matrix.name), how.layout, how.element, false,
                      folder.tensor(matrix.part(kScale))};
    coded.group_rows = how.groups == ScaleGroups::kWhole   ? matrix.rows
                       : how.groups == ScaleGroups::kTiles ? choice.block
                                                           : 1;
    coded.group_columns = width;
    coded.scales = coded.scales.reshape(
        {coded.scales.numel() / groups_across(matrix, width), groups_across(matrix, width)});
    if (how.rounds_again)
      coded.again = number_in(folder, matrix.part(kSecond));
    else if (how.second)
      coded.whole = number_in(folder, matrix.part(kSecond));
    if (const std::string before = matrix.part(kBefore); folder.find(before) != nullptr)
      coded.of_columns = folder.tensor(before).to(DType::kF32, MemoryTag::kWorkspace);
    Tensor read = decoded_rows(coded, matrix.columns, first, count);
    release_rows(folder, matrix.name, coded, first, count);
    return read;
  }

  RoundedActivations activations(const ModelFolder& folder, const QuantizedMatrix& matrix) const override {
    using Unscaled = ModeloptInputs::Unscaled;
    const ModeloptInputs inputs = inputs_of(*choice_for(matrix).algorithm);
    const std::string scale = matrix.part(kInputScale), format(inputs.format);
    RoundedActivations found{.kept = kept_values(folder, matrix)};
    if (format.empty()) return found;
    if (folder.find(scale) != nullptr)
      found.input = rounded_by(folder, format, scale);
    else if (inputs.without_scale != Unscaled::kAsTheyAre)
      found.input = {
          .format = format, .by_token = inputs.without_scale == Unscaled::kByToken, .dynamic = true};
    if (const std::string before = matrix.part(kBefore); found.input && folder.find(before) != nullptr)
      found.pre_quant_scale = folder.tensor(before).to(DType::kF32);
    return found;
  }

  WritesMatrix writer(const ModelFolder&, const QuantizedMatrix& matrix) const override {
    return modelopt_writer(choice_for(matrix), matrix);
  }

 private:
  static constexpr std::string_view kScale = ".weight_scale", kSecond = ".weight_scale_2",
                                    kBefore = ".pre_quant_scale", kInputScale = ".input_scale";
  static constexpr std::string_view kEndings[] = {".weight",   kScale,          kSecond,    kBefore,
                                                  kInputScale, ".output_scale", ".k_scale", ".v_scale"};
  static constexpr std::string_view kFloats[] = {"F32", "BF16", "F16"};

  static int64_t groups_across(const QuantizedMatrix& matrix, int64_t width) {
    return (matrix.columns + width - 1) / width;
  }

  ModeloptChoice choice_for(const QuantizedMatrix& matrix) const {
    if (all_.algorithm != nullptr) return all_;
    const auto found = modules_.find(matrix.part(""));
    return found == modules_.end() ? ModeloptChoice{} : found->second;
  }

  std::string name_;
  ModeloptChoice all_;
  std::map<std::string, ModeloptChoice> modules_;  // of MIXED_PRECISION, by name
};

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

Json completed_by_modelopt(Json config, const std::string& where, const Json& extra,
                           const std::string& where_extra) {
  const Json* how = extra.is_object() ? extra.find("quantization") : nullptr;
  if (!config.is_object() || how == nullptr || !how->is_object()) return config;
  const auto check = [&](const char* key, const Json& own, const Json& other, bool same) {
    if (!same)
      fail("[{}] {} is {}, but {} in {}: one of them is wrong; write the folder again", where, key,
           own.dump(), other.dump(), where_extra);
  };
  const Json *own = config.find("quant_algo"), *other = how->find("quant_algo");
  if (own != nullptr && other != nullptr && own->is_string() && other->is_string())
    check("quant_algo", *own, *other, lower(own->as_string()) == lower(other->as_string()));
  const Json *size = config.find(kGroupSize), *other_size = how->find(kGroupSize);
  if (other_size == nullptr || !other_size->is_int()) return config;
  if (size != nullptr && size->is_int()) check(kGroupSize, *size, *other_size, *size == *other_size);
  config.set(kGroupSize, *other_size);
  return config;
}

std::shared_ptr<const QuantizedForm> modelopt_form(const Json& config, const std::string& where) {
  return std::make_shared<ModeloptForm>(config, where);
}

}  // namespace

void register_modelopt() {
  checkpoints::quantized_forms().add(
      "modelopt", {modelopt_form, "hf_quant_config.json", "quantization", completed_by_modelopt});
}

}  // namespace temper::foreign
