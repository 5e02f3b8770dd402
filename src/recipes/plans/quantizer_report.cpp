#include "recipes/plans/quantizer_report.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "calibration/calibration.h"
#include "checkpoints/hf_folder.h"
#include "checkpoints/quantized_form.h"
#include "models/export_checks.h"
#include "models/folder_config.h"
#include "models/model.h"
#include "recipes/keys/recipe.h"

namespace temper::recipes {
namespace {

using quantizers::PlannedQuantizer;

std::string amax_of(const PlannedQuantizer& quantizer) {
  if (!quantizer.format.needs_amax()) return "none";
  if (quantizer.of_input && quantizer.kind.dynamic) return "of each pass";
  return to_string(quantizer.amax);
}

std::string table_of(const quantizers::QuantizerPlan& plan) {
  using Row = std::array<std::string, 6>;
  std::vector<Row> rows{{"quantizer", "count", "format", "scales for", "amax", "decided by"}};
  int64_t count = 0;
  for (const PlannedQuantizer& quantizer : plan.quantizers) {
    rows.push_back({quantizer.name, fmt::format("{}", quantizer.count), quantizer.formats(),
                    quantizer.groups(), amax_of(quantizer), quantizer.rule});
    count += quantizer.count;
  }
  std::array<size_t, 6> widths{};
  for (const Row& row : rows)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string text;
  for (const Row& row : rows) {
    for (size_t i = 0; i + 1 < row.size(); ++i) text += fmt::format("{:<{}}  ", row[i], widths[i]);
    text += row.back() + "\n";
  }
  return text + fmt::format("\n{} quantizers\n{}\n", count, describe_rules(plan));
}

}  // namespace

void check_quantize(const RunConfig& config) {
  const quantizers::QuantizeOptions options = config.quantize.to_options();
  if (!options.any()) return;
  if (!config.adapters.empty() && config.model.base_dtype)
    fail(
        "[quantize] rounds the weights below adapters, which model.base_dtype keeps in {}: leave one of them "
        "out",
        config.model.kept_in());
}

std::vector<std::string> quantize_keys_without_effect(const QuantizeConfig& config,
                                                      const quantizers::Quantizers& quantizers) {
  std::vector<std::string> sentences;
  const bool experts = std::ranges::any_of(quantizers.plan().quantizers,
                                           [](const PlannedQuantizer& each) { return each.experts > 0; });
  if (!config.per_expert && !experts)
    sentences.emplace_back("[quantize.per_expert] is false, and has no effect: no experts are quantized");
  if (config.calibration_rows != QuantizeConfig().calibration_rows && !calibration::needs_rows(quantizers))
    sentences.push_back(
        fmt::format("[quantize.calibration_rows] is {}, and has no effect: nothing that passes is "
                    "calibrated",
                    config.calibration_rows));
  return sentences;
}

std::string why_not_exported(const quantizers::QuantizerPlan& plan, const WeightTable& table) {
  try {
    models::exported_forms(plan, table);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::string describe_rules(const quantizers::QuantizerPlan& plan) {
  std::vector<std::string> lines;
  for (const quantizers::RuleMatches& rule : plan.rules)
    lines.push_back(fmt::format("{}: matches {} tensor{} with {} quantizers{}", rule.rule, rule.tensors,
                                rule.tensors == 1 ? "" : "s", rule.matched,
                                rule.decided == rule.matched ? ""
                                                             : fmt::format("; later rules decide {} of them",
                                                                           rule.matched - rule.decided)));
  return join(lines, "\n");
}

std::string describe_quantizers(const RunConfig& config) {
  check_quantize(config);
  const quantizers::QuantizeOptions options = config.quantize.to_options();
  if (!options.any())
    fail("[quantize] has neither a preset nor rules: write quantize: {{preset: FP8_DEFAULT}}, for example");
  const std::string& folder = config.model.path;
  if (!is_directory(folder)) fail("[model.path] '{}' {}", folder, checkpoints::no_model_folder(folder));
  const Json model = models::config_of_folder(folder);
  const layers::DecoderConfig architecture = models::configure(model, join_path(folder, "config.json"));
  checkpoints::check_not_quantized(folder);
  const WeightTable table = layers::decoder_weight_table(architecture);
  const quantizers::QuantizerPlan plan = quantizers::plan_quantizers(table, options);
  const std::string why_not = why_not_exported(plan, table);
  return table_of(plan) + (why_not.empty()
                               ? fmt::format("temper export writes {}\n",
                                             models::exported_algorithms(models::exported_forms(plan, table)))
                               : fmt::format("temper export cannot write this: {}\n", why_not));
}

}  // namespace temper::recipes
