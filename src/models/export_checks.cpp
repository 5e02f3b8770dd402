#include "models/export_checks.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "foreign/compressed_parts.h"

namespace temper::models {
namespace {

using quantizers::PlannedQuantizer;
using quantizers::QuantizerRole;

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
  const foreign::ModeloptAlgorithm& how = *form.algorithm;
  const int64_t unit = how.groups == foreign::ScaleGroups::kTiles     ? module.weight->kind.block
                       : how.layout == foreign::CodesIn::kPairsOfRows ? 2
                                                                      : 1;
  for (const WeightSource& source : spec.sources)
    if (source.rows % unit != 0)
      fail("[export] {} has {} rows, which {} of {} rows do not divide: leave {} as it is", source.name,
           source.rows, unit == 2 ? "pairs" : "tiles", unit, module.weight->name);
}

// Formats that only compressed-tensors has cannot be in one folder with formats that it does not have.
void check_one_folder(const std::map<std::string, Planned>& modules,
                      const std::map<std::string, ExportedForm>& forms) {
  const auto only = std::ranges::find_if(
      forms, [](const auto& each) { return foreign::only_compressed(*each.second.algorithm); });
  if (only == forms.end()) return;
  for (const auto& [name, form] : forms) {
    const Planned& module = modules.at(name);
    if (!foreign::compressed_format(*form.algorithm).empty() && module.kept == nullptr) continue;
    fail(
        "[export] {} is {}, which only compressed-tensors has, and {} is {}, which it has not: no folder has "
        "both",
        modules.at(only->first).weight->name, only->second.algorithm->name,
        module.kept != nullptr ? module.kept->name : module.weight->name,
        module.kept != nullptr ? "a scale of the cache" : form.algorithm->name);
  }
}

}  // namespace

std::map<std::string, ExportedForm> exported_forms(const quantizers::QuantizerPlan& plan,
                                                   const WeightTable& table) {
  std::map<std::string, Planned> modules;
  for (const PlannedQuantizer& planned : plan.quantizers) add(modules[planned.weight], planned);
  std::map<std::string, ExportedForm> forms;
  for (const auto& [name, module] : modules) {
    if (module.weight == nullptr)
      fail("[export] {}: the module's weight has no quantizer, and readers do not support that",
           (module.input != nullptr ? module.input : module.kept)->name);
    const ExportedForm form = exported_form(*module.weight, module.input);
    check_rows(*table.find(name), module, form);
    forms.emplace(name, form);
  }
  check_one_folder(modules, forms);
  return forms;
}

std::string exported_algorithms(const std::map<std::string, ExportedForm>& forms) {
  std::set<std::string_view> names;
  bool compressed = false;
  for (const auto& [weight, form] : forms) {
    names.insert(form.algorithm->name);
    compressed = compressed || foreign::only_compressed(*form.algorithm);
  }
  return join(std::vector<std::string>(names.begin(), names.end())) +
         (compressed ? ", by --form compressed-tensors" : "");
}

}  // namespace temper::models
