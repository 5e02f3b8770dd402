#include "models/export_integers.h"

#include "base/error.h"
#include "foreign/compressed_parts.h"

namespace temper::models {
namespace {

using quantizers::PlannedQuantizer;
using quantizers::Sharing;

bool is_int8_of_rows(const PlannedQuantizer& weight) {
  return weight.kind.format == "int8" && weight.kind.sharing == Sharing::kRow && !weight.rounds_again();
}

bool is_int8_by_token(const PlannedQuantizer* input) {
  return input != nullptr && input->kind.format == "int8" && input->kind.sharing == Sharing::kRow;
}

// One for all tokens, which was calibrated, or one for each of them.
bool is_known_input(const PlannedQuantizer& input) {
  return input.kind.format == "int8" && (input.keeps_amax() || input.kind.sharing == Sharing::kRow);
}

// "": there is none.
std::string_view name_of(const PlannedQuantizer& weight, const PlannedQuantizer* input) {
  const bool rows = weight.kind.sharing == Sharing::kRow, blocks = weight.kind.sharing == Sharing::kBlock;
  if (input != nullptr) {
    if (!is_int8_of_rows(weight) || !is_known_input(*input)) return "";
    return weight.has_zero_points() ? "W8A8_ASYM" : "W8A8";
  }
  if (weight.kind.format == "int4") return blocks ? "W4A16_ASYM" : rows ? "W4A16_ASYM per channel" : "";
  if (weight.kind.format == "int8") return rows ? "W8A16_ASYM" : blocks ? "W8A16_ASYM in blocks" : "";
  return "";
}

}  // namespace

std::optional<ExportedForm> integer_form(const PlannedQuantizer& weight, const PlannedQuantizer* input) {
  const bool zeros = weight.has_zero_points() || (input != nullptr && input->has_zero_points());
  if (!zeros && !(is_int8_of_rows(weight) && is_int8_by_token(input))) return std::nullopt;
  const std::string_view name = name_of(weight, input);
  if (name.empty())
    fail(
        "[export] {} is {} per {} with {}: of integers with zero points readers know int4 and int8 per "
        "channel or "
        "in blocks alone, and int8 per channel with inputs in int8, calibrated or per token",
        weight.name, weight.formats(), weight.groups(),
        input == nullptr ? "inputs that are not quantized"
                         : fmt::format("inputs in {} per {}{}", input->formats(), input->groups(),
                                       input->kind.dynamic ? ", dynamic" : ""));
  return ExportedForm{foreign::find_compressed_algorithm(name),
                      weight.kind.sharing == Sharing::kBlock ? weight.kind.block : 0};
}

}  // namespace temper::models
