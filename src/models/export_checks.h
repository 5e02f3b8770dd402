#pragma once
#include <map>
#include <string>

#include "models/export_forms.h"
#include "weights/weight_table.h"

// Whether `temper export` can write what a plan quantizes, known before anything is trained.
namespace temper::models {

// By weights of the table, the form that their modules have in exported folders. An Error "[export] …" names
// a quantizer that readers of such folders know no form for.
std::map<std::string, ExportedForm> exported_forms(const quantizers::QuantizerPlan& plan,
                                                   const WeightTable& table);

// "FP8", "FP8, NVFP4", "W4A16_ASYM, by --form compressed-tensors": the algorithms of exported_forms().
std::string exported_algorithms(const std::map<std::string, ExportedForm>& forms);

}  // namespace temper::models
