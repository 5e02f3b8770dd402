#pragma once
#include <map>

#include "checkpoints/hf_folder.h"
#include "models/export_forms.h"

// Exported folders as compressed-tensors has them, which transformers and vLLM read.
namespace temper::models {

struct CompressedModule {
  ExportedForm form = {};
  bool quantizes_inputs = false;
  bool by_token = false;     // inputs have a scale for each token, which passes find
  bool input_zeros = false;  // and zero points
};
using CompressedModules = std::map<std::string, CompressedModule>;  // by the names of files

// quantization_config of config.json; `ignored` are matrices that stay as they are. An Error "[export] …"
// where compressed-tensors has no such form.
Json compressed_quantization_config(const CompressedModules& modules, const std::set<std::string>& ignored);

// What another encoder makes of parameters for nvidia-modelopt, with the names and shapes of
// compressed-tensors (foreign/compressed_parts.h).
class CompressedParameters : public checkpoints::EncodedParameters {
 public:
  // Both must live as long.
  CompressedParameters(const checkpoints::EncodedParameters& encoder, const CompressedModules& modules)
      : encoder_(encoder), modules_(modules) {}

  std::vector<checkpoints::TensorInfo> list(const WeightSpec& spec) const override;
  std::vector<Tensor> encode(const WeightSpec& spec, const Tensor& value) const override;

 private:
  const foreign::ModeloptAlgorithm& algorithm_of(const checkpoints::TensorInfo& info) const;

  const checkpoints::EncodedParameters& encoder_;
  const CompressedModules& modules_;
};

}  // namespace temper::models
