#include "models/export_checks.h"

#include "base/error.h"
#include "base/text.h"

namespace temper::models {
namespace {

using layers::PlannedQuantizer;
using layers::QuantizerRole;

struct Planned {
  const PlannedQuantizer *weight = nullptr, *input = nullptr;
  const PlannedQuantizer* kept = nullptr;  // of keys or values
};

void add(Planned& module, const PlannedQuantizer& planned) {
  if (planned.role == QuantizerRole::kOutput)
    fail(
        "[export] {} rounds what a module gives: readers know no scale of that, and would compute something "
        "else; train without outputs in quantize.rules",
        planned.name);
  if (planned.role > QuantizerRole::kOutput && planned.kind.format != "fp8")
    fail("[export] {} keeps keys and values in {}: readers know fp8", planned.name, planned.kind.format);
  (planned.role == QuantizerRole::kWeight  ? module.weight
   : planned.role == QuantizerRole::kInput ? module.input
                                           : module.kept) = &planned;
}

void check_rows(const WeightSpec& spec, const Planned& module, const ExportedForm& form) {
  if (module.kept != nullptr && spec.sources.size() != 3)
    fail(
        "[export] {} has queries, keys and values as one matrix in files: readers know no scale of its cache",
        spec.name);
  if (spec.experts_in_files > 0)
    fail(
        "[export] {} is quantized: readers know no such format of experts whose files have transposes; leave "
        "the experts out of the quantization",
        spec.name);
  const checkpoints::ModeloptAlgorithm& how = *form.algorithm;
  const int64_t unit = how.groups == checkpoints::ScaleGroups::kTiles     ? module.weight->kind.block
                       : how.layout == checkpoints::CodesIn::kPairsOfRows ? 2
                                                                          : 1;
  for (const WeightSource& source : spec.sources)
    if (source.rows % unit != 0)
      fail("[export] {} has {} rows, which {} of {} rows do not divide: leave {} as it is", source.name,
           source.rows, unit == 2 ? "pairs" : "tiles", unit, module.weight->name);
}

}  // namespace

std::map<std::string, ExportedForm> exported_forms(const layers::QuantizerPlan& plan,
                                                   const WeightTable& table) {
  std::map<std::string, Planned> modules;
  for (const PlannedQuantizer& planned : plan.quantizers) add(modules[planned.weight], planned);
  std::map<std::string, ExportedForm> forms;
  for (const auto& [name, module] : modules) {
    if (module.weight == nullptr)
      fail("[export] {} has no quantizer of its weight beside it: readers do not know that",
           (module.input != nullptr ? module.input : module.kept)->name);
    const ExportedForm form = exported_form(*module.weight, module.input);
    check_rows(*table.find(name), module, form);
    forms.emplace(name, form);
  }
  return forms;
}

std::string exported_algorithms(const std::map<std::string, ExportedForm>& forms) {
  std::set<std::string_view> names;
  for (const auto& [weight, form] : forms) names.insert(form.algorithm->name);
  return join(std::vector<std::string>(names.begin(), names.end()));
}

}  // namespace temper::models
