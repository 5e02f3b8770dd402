#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "quant/format.h"
#include "weights/weight_table.h"

// Which weights and inputs of a model are quantized, and how: made once from a configuration and the weight
// table, before there are any values.
namespace temper::quantizers {

// The elements that share an amax: those of a whole matrix (of one expert), of a row (a channel of a weight,
// a token of an input), of `block` neighbours in a row, or of `block` rows and columns.
enum class Sharing { kTensor, kRow, kBlock, kTile };

// How a quantizer works. An empty format: there is none.
struct QuantizerKind {
  std::string format = {};  // of quant::formats()
  Sharing sharing = Sharing::kTensor;
  int64_t block = 0;     // of kBlock and kTile
  bool dynamic = false;  // an input's amax is found in each pass; otherwise it is calibrated
  // Of weights: the format that what comes back is rounded to once more, with the largest amax of the matrix;
  // empty: none.
  std::string again = {};
  // Of integers: zero is in the middle of their range; otherwise it has a code of its own in each range that
  // values have (quant/zero_points.h).
  bool symmetric = true;
  // Of inputs of a weight that is not rounded: columns have factors, which a folder gives.
  bool has_factors = false;
  bool operator==(const QuantizerKind&) const = default;
};

// Of the modules that a pattern names: segments between dots are equal, `*`, or a range of numbers (0-3), and
// a last `*` matches everything below (ops/ops_config.h). Modules have two names: that of the weight table
// ("layers.0.attention.qkv") and those in Hugging Face's files ("model.layers.0.self_attn.q_proj").
struct QuantizerRule {
  std::string modules;
  std::optional<QuantizerKind> weights = {}, inputs = {};  // absent: as the rules before say
  // Of what modules give, and of the keys and values that attention keeps (modules: attention.qkv).
  std::optional<QuantizerKind> outputs = {}, kv_cache = {};
};

// What of a module a quantizer rounds: keys as attention reads them, after their norm and rotation.
enum class QuantizerRole { kWeight, kInput, kOutput, kKeys, kValues };

// How the amax of weights and inputs are found (calibration/calibration.h).
enum class CalibrationMethod {
  kMax,
  kMse,
  kPercentile,
  kEntropy,
  kSmoothQuant,
  kAwqLite,
  kAwqClip,
  kAwqFull
};
// Whether it finds factors of columns (PlannedQuantizer::pre_quant_scale).
bool scales_columns(CalibrationMethod method);
// By the names that configurations write: "max", "awq_lite".
const std::vector<std::pair<std::string, CalibrationMethod>>& calibration_methods();
const std::string& name_of(CalibrationMethod method);

// A ready-made configuration, by the name that nvidia-modelopt has for it, or compressed-tensors.
struct QuantizerPreset {
  std::string_view name;
  QuantizerKind weights, inputs;
  CalibrationMethod calibration = CalibrationMethod::kMax;
};
const std::vector<QuantizerPreset>& quantizer_presets();
// Also with "_CFG" behind the name, and without "_DEFAULT", "_LITE", "_BETA" or "_AWQ_BETA". An Error with
// the nearest name where there is none.
const QuantizerPreset& quantizer_preset(std::string_view name);

// Small linears whose results are decays or gates: a shared expert's gate, a gated delta layer's b and a.
// (Heads, embeddings, routers, norms and convolutions are nothing that quantizers may target.)
bool presets_leave_out(std::string_view module, const WeightSpec& spec);

struct QuantizeOptions {
  std::string preset = {};                // "": none
  std::vector<QuantizerRule> rules = {};  // later ones decide
  bool per_expert = true;  // each expert has an amax of its own; otherwise all share the largest
  CalibrationMethod calibration = CalibrationMethod::kMax;

  bool any() const { return !preset.empty() || !rules.empty(); }
};

struct PlannedQuantizer {
  // "layers.0.attention.qkv.weight_quantizer", "….input_quantizer", "….output_quantizer", and of keys and
  // values "layers.0.attention.k_bmm_quantizer", "….v_bmm_quantizer".
  std::string name;
  std::string weight;  // in the table: "layers.0.attention.qkv.weight"
  QuantizerRole role = QuantizerRole::kWeight;
  bool of_input = false;  // of values that pass, whatever their role; otherwise of a weight
  QuantizerKind kind;
  // Where weights are rounded again both are scaled as readers of files do it (quant::Scaling::kScales).
  quant::Format format;
  int64_t experts = 0;  // of stacked weights; 0: a weight of its own
  // Of independent quantizers: one for each expert that has an amax of its own. An input that is not
  // calibrated has one for all.
  int64_t count = 1;
  // Of a weight as ops/fake_quantize takes it: [rows, columns] or [experts, rows, columns]; of what
  // passes [1, columns] or [experts, 1, columns].
  Shape values;
  Shape amax;        // of one that is kept; no dimensions: there is none
  std::string rule;  // that decided: "preset FP8_DEFAULT", "rule 'layers.0.*'"
  // Of factors that a calibration gives the columns of the module's input, and their reciprocals those of the
  // weight, before either is rounded: [1, columns], or of experts [experts, 1, columns]; no dimensions: there
  // are none.
  Shape pre_quant_scale = {};

  bool keeps_amax() const { return amax.ndim() > 0; }
  bool rounds_again() const { return !kind.again.empty(); }
  // Then each amax is the upper end of a range, and there is a lower one for each.
  bool has_zero_points() const { return format.has_zero_points(); }
  quant::Format second_format() const;
  Shape second_amax() const;  // [1, 1] or, of experts that have their own, [experts, 1, 1]
  // Whether values are float32 between what is computed with them before they are rounded to their dtype.
  bool computes_in_float32() const { return scales_columns() || rounds_again(); }
  bool scales_columns() const { return pre_quant_scale.ndim() > 0; }
  // Of what passes: whether a row is rounded without looking at others (ops::RowRounding).
  bool rounds_rows_alone() const;
  std::string module() const;   // "layers.0.attention.qkv"
  std::string groups() const;   // "tensor", "row", "blocks of 16"
  std::string formats() const;  // "int4", "int4, then fp8", "int4 with zero points"
};

// Of the amax that a quantizer keeps of its values; no dimensions: it keeps none.
Shape amax_shape_of(const PlannedQuantizer& quantizer);

struct RuleMatches {
  std::string rule;
  int64_t tensors = 0;  // of files that it names, fused ones and experts one by one
  int64_t matched = 0;  // quantizers (with their count) of the modules that it names
  int64_t decided = 0;  // that it decided: no later rule changed them
};

struct QuantizerPlan {
  std::vector<PlannedQuantizer> quantizers;  // in the table's order, weights before inputs
  std::vector<RuleMatches> rules;

  bool empty() const { return quantizers.empty(); }
  const PlannedQuantizer* find(std::string_view name) const;  // null: there is none
};

// An Error "[quantize…] …" for a format, preset or pattern that does not exist (with the nearest name), a
// pattern that names a part of a fused weight, blocks that do not divide a weight, which is named, what
// cannot be quantized so, and rules that leave nothing to quantize.
QuantizerPlan plan_quantizers(const WeightTable& table, const QuantizeOptions& options);

}  // namespace temper::quantizers
