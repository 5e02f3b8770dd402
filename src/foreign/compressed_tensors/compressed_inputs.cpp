#include "foreign/compressed_tensors/compressed_inputs.h"

#include <algorithm>

#include "base/error.h"
#include "foreign/read_activations.h"

namespace temper::foreign {
namespace {

constexpr std::string_view kRegex = "re:";

std::string text_at(const Json& object, const char* key) {
  const Json* found = object.find(key);
  return found != nullptr && found->is_string() ? found->as_string() : "";
}
bool is_true(const Json& object, const char* key, bool omitted) {
  const Json* found = object.find(key);
  return found != nullptr && found->is_bool() ? found->as_bool() : omitted;
}

// Of quant::formats(), by how compressed-tensors describes numbers; "": it is none of them.
std::string format_of(const Json& inputs) {
  const Json* bits = inputs.find("num_bits");
  const Json* block = inputs.find("group_size");
  const int64_t width = bits != nullptr && bits->is_int() ? bits->as_int() : 0,
                columns = block != nullptr && block->is_int() ? block->as_int() : 0;
  const std::string type = text_at(inputs, "type"), strategy = text_at(inputs, "strategy");
  if (type == "float" && !is_true(inputs, "symmetric", true)) return "";  // only integers have zero points
  if (strategy == "tensor_group") return width == 4 && type == "float" && columns == 16 ? "nvfp4" : "";
  if (strategy == "group" && type == "float" && columns == 32)
    return width == 4 ? "mxfp4" : width == 8 ? "mxfp8" : "";
  if (strategy != "tensor" && strategy != "token") return "";
  return width == 8 && type == "float" ? "fp8" : width == 8 && type == "int" ? "int8" : "";
}

}  // namespace

CompressedInputs::CompressedInputs(const Json& group, const std::string& where) {
  if (!group.is_object()) return;
  if (const Json* targets = group.find("targets"); targets != nullptr && targets->is_array())
    for (const Json& each : targets->as_array())
      if (each.is_string()) add_target(each.as_string(), where);
  linears_ = std::ranges::find(targets_, "Linear") != targets_.end();
  const Json* inputs = group.find("input_activations");
  if (inputs == nullptr || !inputs->is_object()) return;
  format_ = format_of(*inputs);
  if (format_.empty()) unread_ = inputs->dump();
  by_token_ = text_at(*inputs, "strategy") == "token";
  symmetric_ = is_true(*inputs, "symmetric", true);
  // "local": blocks find their scales below one of the whole, which was calibrated.
  dynamic_ = by_token_ || is_true(*inputs, "dynamic", false) || format_.starts_with("mx");
}

void CompressedInputs::add_target(const std::string& target, const std::string& where) {
  if (!target.starts_with(kRegex)) return targets_.push_back(target);
  const std::string regex = target.substr(kRegex.size()), place = fmt::format("{} targets", where);
  tokenizers::Pattern::regex(regex, place);  // as it is written, for its message
  patterns_.push_back(tokenizers::Pattern::regex("\\A(?:" + regex + ")", place));
}

bool CompressedInputs::is_of(const std::string& module) const {
  return linears_ || std::ranges::find(targets_, module) != targets_.end() ||
         std::ranges::any_of(patterns_, [&](const auto& each) { return each.find(module, 0).has_value(); });
}

std::optional<RoundedValues> CompressedInputs::of(const ModelFolder& folder,
                                                  const QuantizedMatrix& matrix) const {
  if (format_.empty()) return std::nullopt;
  if (dynamic_)
    return RoundedValues{.format = format_, .by_token = by_token_, .symmetric = symmetric_, .dynamic = true};
  if (format_ == "nvfp4") return rounded_by(folder, format_, matrix.part(".input_global_scale"), true);
  const std::string scale = matrix.part(".input_scale");
  return symmetric_ ? rounded_by(folder, format_, scale)
                    : rounded_by_zero_point(folder, format_, scale, matrix.part(".input_zero_point"));
}

}  // namespace temper::foreign
