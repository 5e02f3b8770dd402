#pragma once
#include <memory>
#include <string>

#include "models/model.h"

// Quantized folders say how inputs of modules, and keys and values, are rounded: a model with these
// quantizers computes what was trained. Its weights are what the folder's codes mean.
namespace temper::models {

// As load_model() without `quantize`; of a quantized folder, with these quantizers. An Error "[folder] …"
// where parts of what is one weight here disagree.
std::unique_ptr<Model> load_as_quantized(const std::string& folder, const BuildOptions& options);

}  // namespace temper::models
