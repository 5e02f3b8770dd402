#pragma once
#include <string>

#include "models/model.h"

namespace temper::models {

// Writes the model in the formats of its quantizers, which must be calibrated, as nvidia-modelopt writes them
// and vLLM, TensorRT-LLM and SGLang read them: codes and scales under the names of Hugging Face's modules,
// hf_quant_config.json, and
// quantization_config in config.json. Tokenizer and generation files are copied from `files_from`.
//   FP8:          weight F8_E4M3 [out, in], weight_scale and input_scale float32 []
//   NVFP4:        weight U8 [out, in / 2], weight_scale F8_E4M3 [out, in / 16], weight_scale_2 and
//                 input_scale float32 []
//   W4A16_NVFP4:  NVFP4 without input_scale
// Modules that are fused when they are served (q, k, v; gate, up) have equal scales. What training rounds to
// is codes times scales, bit by bit: weight_scale of FP8 is the reciprocal 1 / (448 / amax) that training
// multiplies by. An Error "[export] …" names a quantizer whose format has no such form.
void export_model(const Model& model, const std::string& folder, const std::string& files_from);

}  // namespace temper::models
