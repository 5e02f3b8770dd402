#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/json/json.h"
#include "layers/decoder.h"
#include "models/text_part.h"

namespace temper::models {

class ConfigReader;

// A family of models, by the `model_type` of its config.json.
struct Family {
  layers::DecoderConfig (*configure)(ConfigReader& reader) = nullptr;
  std::optional<TextPart> text = {};  // of a family that also reads pictures, in place of `configure`
};

enum class Purpose { kInference, kTraining };

// The family's reading of a config.json, before anything is built. Refused by name and value: an unsupported
// model_type (with the list of those that are), sizes out of bounds, and keys that change what transformers
// computes for this purpose and are not supported here.
layers::DecoderConfig configure(const Json& config, const std::string& where,
                                Purpose purpose = Purpose::kInference);
// What the family of the text reads of it; all of it where the model reads text alone.
TextConfig text_config_of(const Json& config, const std::string& where);
// One line that lists the keys which have no effect on the model, and a warning for each of them that looks
// like a misspelling of one that has, and for each token id beyond the vocabulary. Nothing where there are
// none.
void report_unused(const Json& config, const std::string& where);
std::vector<std::string> supported_model_types();

struct BuildOptions {
  std::optional<DType> dtype = {};  // absent: the file's dtype
  // What the linears of a model that is not trained are kept in; absent: `dtype`.
  std::optional<primitives::FrozenFormat> base_dtype = {};
  // Training without a choice of kernels is an error: a script that wants one that runs everywhere asks for
  // ops::all_eager() by name. Inference takes the best for the hardware.
  std::optional<ops::OpsConfig> ops = {};
  Purpose purpose = Purpose::kInference;
  HardwareFacts facts = detect_cpu();  // and the device that the model lives on
  layers::StateFormat format = {};
  layers::RouterOptions routers = {};
  quantizers::QuantizeOptions quantize = {};
  bool quantized_as_read = false;  // `quantize` is what a quantized folder says itself (read_quantizers.h)
  // The kernels are those for `facts`, but the model lives on a device that only counts what it takes.
  bool counted = false;
  layers::ModelRanks ranks = {};  // that compute the model together
  // Values in place of logits (DecoderConfig::gives_values); zero at first where the folder has none.
  bool gives_values = false;
};

// A small model of a common shape, for reports that need one.
Json typical_config();

// The kernels of a model, without building it.
ops::BoundOps bind_kernels(const Json& config, const std::string& where, const BuildOptions& options);

// A model and the config.json it came from, which is written back unchanged except the dtype.
struct Model {
  std::string folder;
  Json config;
  layers::Decoder decoder;
};

// Builds without weights (config only), or with the weights of a Hugging Face folder, whose unused keys are
// reported.
std::unique_ptr<Model> build_model(const Json& config, const std::string& where, const BuildOptions& options);
std::unique_ptr<Model> load_model(const std::string& folder, const BuildOptions& options);
DType dtype_of_folder(const std::string& folder);  // as its config.json says it
// A config.json as it is written: of a model that also reads pictures it says wherever a library may look
// whether the head is tied.
Json config_in_files(const Json& config, const layers::DecoderConfig& architecture);
// Writes a folder that transformers loads; tokenizer and generation files are copied from `files_from`.
// `whole`: of ranks that hold parts of the model, what gives a parameter by its place in the table.
void save_model(const Model& model, const std::string& folder, const std::string& files_from,
                const std::function<Tensor(size_t)>& whole = nullptr);

}  // namespace temper::models
