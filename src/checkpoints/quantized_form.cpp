#include "checkpoints/quantized_form.h"

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "checkpoints/matrix_writer.h"

namespace temper::checkpoints {
namespace {

constexpr std::string_view kReadApart = "mxfp4";

}  // namespace

std::string QuantizedMatrix::part(std::string_view ending) const {
  constexpr std::string_view kWeight = ".weight";
  const std::string_view module =
      name.ends_with(kWeight) ? std::string_view(name).substr(0, name.size() - kWeight.size()) : name;
  return fmt::format("{}{}", module, ending);
}

std::optional<quant::Nf4> QuantizedForm::nf4(const ModelFolder&, const QuantizedMatrix&) const {
  return std::nullopt;
}

RoundedActivations QuantizedForm::activations(const ModelFolder&, const QuantizedMatrix&) const { return {}; }

std::unique_ptr<const MatrixWriter> QuantizedForm::writer(const ModelFolder&, const QuantizedMatrix&) const {
  return nullptr;
}

std::string readable_quant_method(const Json& quantization_config, const std::string& where) {
  const Json* method =
      quantization_config.is_object() ? quantization_config.find("quant_method") : &quantization_config;
  if (method != nullptr && method->is_string()) {
    const std::string name = method->as_string();
    if (name == kReadApart || quantized_forms().find(name) != nullptr) return name;
  }
  std::vector<std::string> readable;
  for (const auto& each : quantized_forms().entries()) readable.push_back(each.name);
  fail(
      "[{}] quantization_config: quant_method is {}, expected one of [{}]; use the original in bfloat16, or "
      "a "
      "folder that one of these wrote",
      where, method == nullptr ? "missing" : method->dump(), join(readable));
}

std::shared_ptr<const QuantizedForm> quantized_form_of(const std::string& folder) {
  const std::string where = join_path(folder, "config.json");
  if (exists(where)) {
    const Json config = Json::parse_file(where);
    for (const char* key : {"quantization_config", "compression_config"}) {
      const Json* found = config.is_object() ? config.find(key) : nullptr;
      if (found == nullptr || found->is_null()) continue;
      const QuantizedFormReader* reader = quantized_forms().find(readable_quant_method(*found, where));
      if (reader == nullptr) return nullptr;
      const std::string extra = join_path(folder, reader->file);
      if (reader->complete != nullptr && exists(extra))
        return reader->make(reader->complete(*found, where, Json::parse_file(extra), extra), where);
      return reader->make(*found, where);
    }
  }
  for (const auto& [name, reader] : quantized_forms().entries()) {
    const std::string extra = join_path(folder, reader.file);
    if (reader.file.empty() || !exists(extra)) continue;
    const Json config = Json::parse_file(extra);
    if (reader.key.empty()) return reader.make(config, extra);
    const Json* how = config.is_object() ? config.find(reader.key) : nullptr;
    if (how == nullptr) fail("[{}] '{}' is missing, expected how the folder is quantized", extra, reader.key);
    return reader.make(*how, extra);
  }
  return nullptr;
}

void check_not_quantized(const std::string& folder) {
  const std::string where = join_path(folder, "config.json");
  std::string found;
  if (const auto form = quantized_form_of(folder)) {
    found = form->name();
  } else if (exists(where)) {
    const Json config = Json::parse_file(where);
    const Json* how = config.is_object() ? config.find("quantization_config") : nullptr;
    if (how != nullptr && !how->is_null()) found = readable_quant_method(*how, where);
  }
  if (!found.empty())
    fail(
        "[quantize] the model {} is quantized already ({}); use the model that it was made from, or leave "
        "quantize out: then training starts from the numbers that its codes mean",
        folder, found);
}

}  // namespace temper::checkpoints
