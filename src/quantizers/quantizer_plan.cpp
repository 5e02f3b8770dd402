#include "quantizers/quantizer_plan.h"

#include <algorithm>
#include <array>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "ops/ops_config.h"
#include "quant/number_format.h"
#include "quantizers/column_plan.h"

namespace temper::quantizers {
namespace {

constexpr std::string_view kWeight = ".weight";

std::string module_of(std::string_view weight) {
  return std::string(weight.substr(0, weight.size() - (weight.ends_with(kWeight) ? kWeight.size() : 0)));
}

// What a rule says of a module; the preset is a rule for nearly all of them.
struct Rule {
  std::string name;
  std::string pattern;  // "": the preset's
  std::optional<QuantizerKind> weights, inputs, outputs, kv_cache;

  const std::optional<QuantizerKind>& of(QuantizerRole role) const {
    switch (role) {
      case QuantizerRole::kWeight:
        return weights;
      case QuantizerRole::kInput:
        return inputs;
      case QuantizerRole::kOutput:
        return outputs;
      default:
        return kv_cache;
    }
  }
};

constexpr std::array kRoles{QuantizerRole::kWeight, QuantizerRole::kInput, QuantizerRole::kOutput,
                            QuantizerRole::kKeys, QuantizerRole::kValues};

std::vector<Rule> rules_of(const QuantizeOptions& options) {
  std::vector<Rule> rules;
  if (!options.preset.empty()) {
    const QuantizerPreset& preset = quantizer_preset(options.preset);
    rules.push_back({fmt::format("preset {}", preset.name), "", preset.weights, preset.inputs, {}, {}});
  }
  for (const QuantizerRule& rule : options.rules)
    rules.push_back({fmt::format("rule '{}'", rule.modules), rule.modules, rule.weights, rule.inputs,
                     rule.outputs, rule.kv_cache});
  return rules;
}

// By its name here, or by all names that files have for its parts.
bool names_module(const Rule& rule, const WeightSpec& spec) {
  const std::string module = module_of(spec.name);
  if (rule.pattern.empty()) return !presets_leave_out(module, spec);
  if (ops::module_matches(rule.pattern, module)) return true;
  const auto named = [&](const WeightSource& source) {
    return ops::module_matches(rule.pattern, module_of(source.name));
  };
  const auto& sources = spec.sources;
  if (std::none_of(sources.begin(), sources.end(), named)) return false;
  const auto other = std::find_if_not(sources.begin(), sources.end(), named);
  if (other != sources.end())
    fail(
        "[quantize.rules] '{}' names a part of {}, but not {}: they share their scales, as readers of the "
        "exported folder fuse them; name all of them, or '{}'",
        rule.pattern, module, module_of(other->name), module);
  return true;
}

// With "*" for the numbers of layers and experts: as people write patterns.
std::string without_numbers(const std::string& module) {
  std::string name;
  for (const char c : module)
    if (c < '0' || c > '9' || (!name.empty() && name.back() != '.' && name.back() != '*'))
      name += c;
    else if (name.empty() || name.back() != '*')
      name += '*';
  return name;
}

std::vector<std::string> written_names(const WeightTable& table) {
  std::set<std::string> names;
  for (const WeightSpec& spec : table.specs())
    if (spec.quantize) {
      names.insert(without_numbers(module_of(spec.name)));
      for (const WeightSource& source : spec.sources) names.insert(without_numbers(module_of(source.name)));
    }
  return {names.begin(), names.end()};
}

[[noreturn]] void fail_unmatched(const WeightTable& table, const Rule& rule) {
  const std::vector<std::string> names = written_names(table);
  const std::string nearest = nearest_name(rule.pattern, names);
  if (names.empty()) fail("[quantize] the model has no weights that quantizers may target");
  fail("[quantize.rules] '{}' matches no weight that quantizers may target{}; there are {}", rule.pattern,
       nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest), join(names));
}

// Of a weight or an input with `columns` columns. `what` is "layers.0.mlp.down.weight".
void check_columns(const std::string& what, const PlannedQuantizer& quantizer, int64_t columns) {
  const auto divides = [&](int64_t size, int64_t block, const char* of) {
    if (block > 0 && size % block == 0) return;
    fail(
        "[quantize] {} has {} {}, which blocks of {} ({}) do not divide; give it another format or block in "
        "quantize.rules, or none",
        what, size, of, block, quantizer.kind.format);
  };
  if (quantizer.format.has_blocks()) return divides(columns, quantizer.format.block, "columns");
  const Sharing sharing = quantizer.kind.sharing;
  if (sharing == Sharing::kBlock || sharing == Sharing::kTile)
    divides(columns, quantizer.kind.block, "columns");
  if (sharing == Sharing::kTile)
    divides(quantizer.values[quantizer.values.ndim() - 2], quantizer.kind.block, "rows");
}

void check_kind(const std::string& what, const PlannedQuantizer& quantizer) {
  const QuantizerKind& kind = quantizer.kind;
  if (quantizer.rounds_again() &&
      (kind.again != "fp8" || kind.sharing != Sharing::kBlock || !quantizer.format.element.integer))
    fail(
        "[quantize] {} is {}: what is rounded twice is integers in blocks, and then fp8; "
        "write weights: int4, weights_per: block and weights_again: fp8, or leave weights_again out",
        what, quantizer.formats());
  if (quantizer.format.has_blocks() && kind.sharing != Sharing::kTensor)
    fail("[quantize] {}: {} finds the scales of its own blocks; leave {} out", what, kind.format,
         quantizer.of_input ? "inputs_per" : "weights_per");
  if (!quantizer.of_input && quantizer.format.element.lowest == 0 && kind.symmetric)
    fail("[quantize] {}: {} has no negative numbers, which weights need: write weights_symmetric: false, too",
         what, kind.format);
  if (!quantizer.of_input) return;
  if (kind.sharing == Sharing::kBlock || kind.sharing == Sharing::kTile)
    fail("[quantize] the inputs of {}: {} in blocks is for weights; write inputs_per: tensor or token", what,
         kind.format);
  if (kind.sharing == Sharing::kRow && !kind.dynamic)
    fail("[quantize] the inputs of {}: tokens cannot be calibrated one by one; write inputs_amax: dynamic",
         what);
}

// Experts with biases are one op, which reads its inputs as they are.
void check_inputs_of_experts(const WeightSpec& spec) {
  if (spec.experts_in_files == 0) return;
  const std::string module = module_of(spec.name);
  fail(
      "[quantize] the inputs of {} cannot be quantized: experts with biases read them as they are; add the "
      "rule {{modules: {}, inputs: none}}",
      module, without_numbers(module.substr(0, module.rfind('.'))) + ".*");
}

// The rows of keys or values in the table's stacked qkv matrix; null: the module's are not in the KV cache.
const WeightSegment* segment_of(const WeightSpec& spec, QuantizerRole role) {
  if (!module_of(spec.name).ends_with(".attention.qkv") || spec.segments.size() != 3) return nullptr;
  return &spec.segments[role == QuantizerRole::kKeys ? 1 : 2];
}

// Rules name at least one module, and where they say something of keys and values, one that keeps some.
void check_matches(const WeightTable& table, const Rule& rule) {
  bool names_any = false, keeps_any = false;
  for (const WeightSpec& spec : table.specs()) {
    if (!spec.quantize || !names_module(rule, spec)) continue;
    names_any = true;
    keeps_any = keeps_any || segment_of(spec, QuantizerRole::kKeys) != nullptr;
  }
  if (!names_any) fail_unmatched(table, rule);
  if (rule.kv_cache && !keeps_any)
    fail(
        "[quantize.rules] '{}' names no keys and values that attention keeps: kv_cache is for attention.qkv "
        "of models without latent attention",
        rule.pattern);
}

bool applies(const WeightSpec& spec, QuantizerRole role) {
  return (role != QuantizerRole::kKeys && role != QuantizerRole::kValues) ||
         segment_of(spec, role) != nullptr;
}

// Independent quantizers of a weight, or of what passes: each expert has its own, but where nothing is
// calibrated.
int64_t count_of(const WeightSpec& spec, QuantizerRole role, const QuantizerKind& kind, bool per_expert) {
  if (spec.lora != LoraRole::kExperts || !per_expert) return 1;
  if (role != QuantizerRole::kWeight &&
      (kind.format.empty() || kind.dynamic || !quant::format_named(kind.format).needs_amax()))
    return 1;
  return spec.stacked_shape[0];
}

std::string name_of(const WeightSpec& spec, QuantizerRole role) {
  const std::string module = module_of(spec.name);
  switch (role) {
    case QuantizerRole::kWeight:
      return module + ".weight_quantizer";
    case QuantizerRole::kInput:
      return module + ".input_quantizer";
    case QuantizerRole::kOutput:
      return module + ".output_quantizer";
    default:
      return module.substr(0, module.rfind('.')) +
             (role == QuantizerRole::kKeys ? ".k_bmm_quantizer" : ".v_bmm_quantizer");
  }
}

Shape values_of(const WeightSpec& spec, QuantizerRole role, int64_t experts) {
  switch (role) {
    case QuantizerRole::kWeight:
      return experts > 0 ? spec.stacked_shape : spec.shape;
    case QuantizerRole::kInput:
      return experts > 0 ? Shape{experts, 1, spec.shape[1]} : Shape{1, spec.shape[1]};
    case QuantizerRole::kOutput:
      return {1, spec.shape[0]};
    default:
      return {1, segment_of(spec, role)->size};
  }
}

PlannedQuantizer planned(const WeightSpec& spec, QuantizerRole role, const QuantizerKind& kind,
                         const std::string& rule, bool per_expert) {
  PlannedQuantizer quantizer;
  quantizer.name = name_of(spec, role);
  quantizer.weight = spec.name;
  quantizer.role = role;
  quantizer.of_input = role != QuantizerRole::kWeight;
  quantizer.kind = kind;
  quantizer.format = quant::format_named(kind.format);
  if (quantizer.rounds_again()) quantizer.format = quant::by_scales(quantizer.format.element);
  if (!kind.symmetric) quantizer.format = quant::by_zero_points(quantizer.format.element);
  quantizer.rule = rule;
  if (spec.lora == LoraRole::kExperts) quantizer.experts = spec.stacked_shape[0];
  quantizer.count = count_of(spec, role, kind, per_expert);
  if (role == QuantizerRole::kInput) check_inputs_of_experts(spec);
  if (role == QuantizerRole::kOutput && spec.experts > 0)
    fail(
        "[quantize] the outputs of {} cannot be quantized: what experts give is added up; name other modules "
        "for outputs",
        module_of(spec.name));
  quantizer.values = values_of(spec, role, quantizer.experts);
  const std::string what = role == QuantizerRole::kWeight  ? spec.name
                           : role == QuantizerRole::kInput ? "the input of " + module_of(spec.name)
                                                           : quantizer.name;
  check_kind(role == QuantizerRole::kInput ? module_of(spec.name) : what, quantizer);
  check_columns(what, quantizer, quantizer.values[quantizer.values.ndim() - 1]);
  quantizer.amax = amax_shape_of(quantizer);
  if (kind.has_factors) quantizer.pre_quant_scale = column_factors_of(quantizer.values);
  return quantizer;
}

// What a calibration needs of the model; none is an Error that says so.
void check_calibration(const QuantizerPlan& plan, CalibrationMethod method) {
  for (const PlannedQuantizer& each : plan.quantizers)
    if (each.has_zero_points() && method > CalibrationMethod::kPercentile)
      fail(
          "[quantize.calibration] {} {}, and {} is {}: write calibration: max, mse or percentile, or leave "
          "out what makes it asymmetric",
          name_of(method),
          scales_columns(method)
              ? "finds factors of columns, which folders with zero points have no tensors for"
              : "looks for one amax and not for both ends of a range",
          each.name, each.formats());
  if (method != CalibrationMethod::kEntropy) return;
  bool any = false;
  for (const PlannedQuantizer& each : plan.quantizers) {
    if (!each.of_input || !each.keeps_amax()) continue;
    any = true;
    if (!each.format.element.integer)
      fail(
          "[quantize.calibration] entropy compares levels of integers, and {} is {}: write calibration: mse, "
          "or percentile",
          each.name, each.kind.format);
  }
  if (!any)
    fail(
        "[quantize.calibration] entropy is for inputs that are calibrated, and there are none: write "
        "calibration: mse, or percentile");
}

// For each role the last rule that says something of it; -1: none does.
using Decision = std::array<int, kRoles.size()>;

Decision decide(const std::vector<Rule>& rules, const WeightSpec& spec, bool per_expert,
                std::vector<RuleMatches>& matches) {
  Decision decision;
  decision.fill(-1);
  for (size_t i = 0; i < rules.size(); ++i) {
    if (!names_module(rules[i], spec)) continue;
    matches[i].tensors += std::ssize(spec.sources) * std::max<int64_t>(1, spec.experts_in_files);
    for (size_t role = 0; role < kRoles.size(); ++role) {
      const std::optional<QuantizerKind>& kind = rules[i].of(kRoles[role]);
      if (!kind || !applies(spec, kRoles[role])) continue;
      // A preset without quantizers of inputs says nothing of them.
      if (kRoles[role] == QuantizerRole::kInput && rules[i].pattern.empty() && kind->format.empty()) continue;
      decision[role] = static_cast<int>(i);
      matches[i].matched += count_of(spec, kRoles[role], *kind, per_expert);
    }
  }
  return decision;
}

}  // namespace

Shape amax_shape_of(const PlannedQuantizer& quantizer) {
  if (!quantizer.format.needs_amax() || (quantizer.of_input && quantizer.kind.dynamic)) return {};
  Shape amax = quantizer.values;
  int64_t& rows = amax[amax.ndim() - 2];
  int64_t& columns = amax[amax.ndim() - 1];
  const int64_t block = quantizer.kind.block;
  switch (quantizer.kind.sharing) {
    case Sharing::kTensor:
      rows = columns = 1;
      break;
    case Sharing::kRow:
      columns = 1;
      break;
    case Sharing::kBlock:
      columns /= block;
      break;
    case Sharing::kTile:
      rows /= block;
      columns /= block;
      break;
  }
  if (quantizer.experts > 0) amax[0] = quantizer.count;
  return amax;
}

std::string PlannedQuantizer::module() const { return module_of(weight); }

quant::Format PlannedQuantizer::second_format() const {
  return quant::by_scales(quant::format_named(kind.again).element);
}

Shape PlannedQuantizer::second_amax() const {
  Shape one = amax;
  for (int d = one.ndim() - 2; d < one.ndim(); ++d) one[d] = 1;
  return one;
}

std::string PlannedQuantizer::formats() const {
  if (rounds_again()) return fmt::format("{}, then {}", kind.format, kind.again);
  return kind.format + (has_zero_points() ? " with zero points" : "");
}

bool PlannedQuantizer::rounds_rows_alone() const {
  const bool finds_rows = kind.sharing == Sharing::kRow && !format.has_blocks();
  return !scales_columns() && !has_zero_points() && (!format.needs_amax() || keeps_amax() || finds_rows);
}

std::string PlannedQuantizer::groups() const {
  if (format.has_blocks()) return fmt::format("blocks of {}", format.block);
  switch (kind.sharing) {
    case Sharing::kTensor:
      return "tensor";
    case Sharing::kRow:
      return of_input ? "token" : "channel";
    case Sharing::kBlock:
      return fmt::format("blocks of {}", kind.block);
    case Sharing::kTile:
      return fmt::format("tiles of {} x {}", kind.block, kind.block);
  }
  return {};
}

const PlannedQuantizer* QuantizerPlan::find(std::string_view name) const {
  const auto found = std::find_if(quantizers.begin(), quantizers.end(),
                                  [&](const PlannedQuantizer& each) { return each.name == name; });
  return found == quantizers.end() ? nullptr : &*found;
}

QuantizerPlan plan_quantizers(const WeightTable& table, const QuantizeOptions& options) {
  const std::vector<Rule> rules = rules_of(options);
  QuantizerPlan plan;
  for (const Rule& rule : rules) plan.rules.push_back({rule.name});
  for (const WeightSpec& spec : table.specs()) {
    if (!spec.quantize) continue;
    const Decision decision = decide(rules, spec, options.per_expert, plan.rules);
    for (size_t role = 0; role < kRoles.size(); ++role) {
      if (decision[role] < 0) continue;
      const auto by = static_cast<size_t>(decision[role]);
      const QuantizerKind& kind = *rules[by].of(kRoles[role]);
      plan.rules[by].decided += count_of(spec, kRoles[role], kind, options.per_expert);
      if (!kind.format.empty())
        plan.quantizers.push_back(planned(spec, kRoles[role], kind, rules[by].name, options.per_expert));
    }
  }
  for (const Rule& rule : rules) check_matches(table, rule);
  if (plan.empty() && options.any())
    fail(
        "[quantize] leaves nothing to quantize: for all that {} names, the last rule says none; leave "
        "quantize out, or that rule",
        rules.front().name);
  check_calibration(plan, options.calibration);
  plan_column_factors(table, plan, options.calibration);
  return plan;
}

}  // namespace temper::quantizers
