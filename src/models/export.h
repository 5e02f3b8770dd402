#pragma once
#include <string>

#include "models/model.h"

namespace temper::models {

enum class ExportForm { kModelopt, kCompressedTensors };
constexpr std::string_view to_string(ExportForm form) {
  return form == ExportForm::kModelopt ? "modelopt" : "compressed-tensors";
}

// Writes the model in the formats of its quantizers, which must be calibrated, as nvidia-modelopt writes them
// and vLLM, TensorRT-LLM and SGLang read them: codes and scales under the names of Hugging Face's modules,
// hf_quant_config.json, and
// quantization_config in config.json. Tokenizer and generation files are copied from `files_from`.
// Which tensors a module has in which shapes is in foreign/modelopt_algorithms.h, which formats of
// weights and inputs these are in models/export_forms.h. Modules that are fused when they are served (q, k,
// v; gate, up) have equal scales of the whole and of inputs. What training rounds to is codes times scales,
// bit by bit: weight_scale of FP8 is the reciprocal 1 / (448 / amax) that training multiplies by. Of integers
// it is amax / largest, and training divides by largest / amax: one rounding lies between the two. An Error
// "[export] …" names a quantizer whose format has no such form.
// `form` kCompressedTensors: the same codes and scales with the names, shapes and configuration of
// compressed-tensors (models/export_compressed.h), without hf_quant_config.json.
void export_model(const Model& model, const std::string& folder, const std::string& files_from,
                  ExportForm form = ExportForm::kModelopt);

}  // namespace temper::models
