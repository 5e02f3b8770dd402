#pragma once
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/json/json.h"
#include "foreign/modelopt_algorithms.h"
#include "quantizers/quantizers.h"

// What nvidia-modelopt calls the formats of a module's weight and input, and what its configurations say.
namespace temper::models {

struct ExportedForm {
  const foreign::ModeloptAlgorithm* algorithm = nullptr;
  int64_t block = 0;  // columns of a block of weights; 0: there is no such block, or it is not written down
  bool operator<(const ExportedForm& other) const {
    return std::pair(algorithm, block) < std::pair(other.algorithm, other.block);
  }
};

// An Error "[export] …" that names the weight's quantizer where it has no name for them. `input` is null for
// inputs that are read as they are.
ExportedForm exported_form(const quantizers::PlannedQuantizer& weight,
                           const quantizers::PlannedQuantizer* input);

// Of a model, by the names of files.
struct ExportedModules {
  std::vector<std::pair<std::string, ExportedForm>> quantized;  // in the table's order
  std::set<std::string> excluded{"lm_head"};                    // matrices that stay as they are
  bool float8_cache = false;                                    // keys and values are kept in E4M3
};

Json hf_quant_config(const ExportedModules& modules);
Json quantization_config(const ExportedModules& modules);  // of config.json

}  // namespace temper::models
