#include "models/model.h"

#include <algorithm>
#include <mutex>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/parts/registry.h"
#include "base/text.h"
#include "checkpoints/files/names.h"
#include "checkpoints/files/other_files.h"
#include "checkpoints/hf_folder.h"
#include "checkpoints/mxfp4.h"
#include "models/config_reader.h"
#include "models/folder_config.h"
#include "ops/report.h"

namespace temper::models {
namespace {

DType dtype_of_config(const Json& config, const std::string& where) {
  const Json* const text = config.find("text_config");
  for (const auto& [of, key] :
       {std::pair{&config, "dtype"}, {&config, "torch_dtype"}, {text, "dtype"}, {text, "torch_dtype"}}) {
    const Json* value = of != nullptr && of->is_object() ? of->find(key) : nullptr;
    if (value == nullptr || value->is_null()) continue;
    const auto dtype = value->is_string() ? dtype_from_string(value->as_string()) : std::nullopt;
    if (!dtype || !is_float(*dtype))
      fail("[{}] {} is {}, expected float32, bfloat16 or float16", where, key, value->dump());
    return *dtype;
  }
  return DType::kF32;
}

const Family& family_of(ConfigReader& reader, const std::string& where) {
  const std::string type = reader.text("model_type", "");
  if (type.empty())
    fail("[{}] model_type is missing; it must be one of [{}]", where, join(supported_model_types()));
  const Family* family = registry<Family>().find(type);
  if (family == nullptr && ops::family_tables().find(type) != nullptr)
    fail("[{}] model_type '{}' is not built yet; only the choice of its kernels is known. Supported are [{}]",
         where, type, join(supported_model_types()));
  if (family == nullptr)
    fail("[{}] model_type '{}' is not supported; supported are [{}]", where, type,
         join(supported_model_types()));
  return *family;
}

// A configuration in the hands of the family that reads it: of the text of one that also reads pictures.
class Reading {
 public:
  Reading(const Json& config, const std::string& where)
      : config_(config), top_(config, where), part_(family_of(top_, where).text) {
    if (part_) text_ = text_config(config, where, *part_);
    reader_.emplace(part_ ? text_.json : config, part_ ? text_.where : where);
    family_ = &family_of(*reader_, reader_->where());
    if (family_->text)
      reader_->refuse("model_type", "is of a model that reads pictures, expected that of a text");
  }

  layers::DecoderConfig configure() {
    layers::DecoderConfig decoder = family_->configure(*reader_);
    if (part_) decoder.published.text = published_text_names(top_.text("model_type", ""));
    return decoder;
  }

  ConfigReader& reader() { return *reader_; }
  bool has_pictures() const { return part_.has_value(); }
  std::string family() { return top_.text("model_type", ""); }
  TextConfig text() { return part_ ? text_ : TextConfig{config_, top_.where()}; }

 private:
  const Json& config_;
  ConfigReader top_;
  std::optional<TextPart> part_;
  TextConfig text_;
  std::optional<ConfigReader> reader_;
  const Family* family_ = nullptr;
};

}  // namespace

std::vector<std::string> supported_model_types() {
  std::vector<std::string> names;
  for (const auto& entry : registry<Family>().entries()) names.push_back(entry.name);
  return names;
}

layers::DecoderConfig configure(const Json& config, const std::string& where, Purpose purpose) {
  Reading reading(config, where);
  layers::DecoderConfig architecture = reading.configure();
  if (purpose == Purpose::kTraining) reading.reader().check_training();
  return architecture;
}

TextConfig text_config_of(const Json& config, const std::string& where) {
  return Reading(config, where).text();
}

void report_unused(const Json& config, const std::string& where) {
  constexpr size_t kSearched = 200;  // for what they may have been meant to be
  Reading reading(config, where);
  reading.configure();
  const ConfigReader& reader = reading.reader();
  for (const std::string& warning : reader.warnings()) log_warning(warning);
  if (reading.has_pictures() && says_tied_differently(config))
    log_warning(
        fmt::format("[{}] tie_word_embeddings is {} and text_config.tie_word_embeddings is not: the head is "
                    "read as a tensor of its own",
                    where, config.at("tie_word_embeddings").dump()));
  std::vector<std::string> keys = reader.unused();
  if (reading.has_pictures())
    for (const std::string& key : ConfigReader::without_usual(unused_top_level_keys(config)))
      keys.push_back(key);
  if (keys.empty()) return;
  log_info(fmt::format("[{}] keys without effect, kept when the model is saved: {}", where,
                       list_some(keys, ", ", 40)));
  keys.resize(std::min(keys.size(), kSearched));
  const std::vector<std::string> absent = reader.absent();
  for (const std::string& key : keys)
    if (const std::string meant = ConfigReader::misspelt(key, absent); !meant.empty())
      log_warning(fmt::format("[{}] '{}' has no effect; did you mean '{}'?", where, key, meant));
}

Json typical_config() {
  return Json::Object{
      {"model_type", "qwen3"},     {"vocab_size", 32000},    {"hidden_size", 1024},
      {"intermediate_size", 3072}, {"num_hidden_layers", 1}, {"num_attention_heads", 16},
      {"num_key_value_heads", 8},  {"head_dim", 128},        {"max_position_embeddings", 4096}};
}

namespace {

layers::DecoderConfig configure_built(const Json& config, const std::string& where,
                                      const BuildOptions& options) {
  layers::DecoderConfig architecture = configure(config, where);
  architecture.routers = options.routers;
  architecture.quantize = options.quantize;
  architecture.gives_values = options.gives_values;
  return architecture;
}

}  // namespace

ops::BoundOps bind_kernels(const Json& config, const std::string& where, const BuildOptions& options) {
  if (options.purpose == Purpose::kTraining && !options.ops)
    fail("[{}] a model is built for training without a choice of kernels; give one, or ops::all_eager()",
         where);
  const DType dtype = options.dtype.value_or(dtype_of_config(config, where));
  const layers::DecoderConfig architecture = configure_built(config, where, options);
  return layers::bind_decoder(architecture, dtype, options.ops.value_or(ops::OpsConfig{}), options.facts,
                              Reading(config, where).family(), options.format, options.ranks.mesh);
}

namespace {

// As Hugging Face describes a model of one label: Qwen3ForCausalLM becomes Qwen3ForSequenceClassification.
Json config_of_values(Json config) {
  if (const Json* architectures = config.find("architectures"); architectures != nullptr) {
    constexpr std::string_view kCausal = "ForCausalLM";
    Json::Array names;
    for (const Json& each : architectures->as_array()) {
      std::string name = each.as_string();
      if (name.ends_with(kCausal))
        name.replace(name.size() - kCausal.size(), kCausal.size(), "ForSequenceClassification");
      names.emplace_back(name);
    }
    config.set("architectures", std::move(names));
  }
  config.set("num_labels", int64_t{1});
  return config;
}

}  // namespace

std::unique_ptr<Model> build_model(const Json& config, const std::string& where,
                                   const BuildOptions& options) {
  ops::BoundOps ops = bind_kernels(config, where, options);
  ops::warn_of_shortfalls(ops.choices());
  const DType dtype = options.dtype.value_or(dtype_of_config(config, where));
  Device device = options.facts.device;
  if (options.counted) {
    ops = ops.outlined();
    device = {DeviceType::kCounted, options.facts.hardware == hardware::kCpu ? 0 : 1};
  }
  // In its place from the start: modules know where parameters are.
  std::unique_ptr<Model> model(
      new Model{"", options.gives_values ? config_of_values(config) : config,
                layers::Decoder(configure_built(config, where, options), dtype, std::move(ops), device,
                                options.base_dtype, options.ranks)});
  // Of a new one files are as published.
  auto& parameters = model->decoder.parameters();
  const auto& specs = parameters.table().specs();
  if (std::any_of(specs.begin(), specs.end(), [](const auto& spec) { return spec.transposes_stacked; })) {
    parameters.set_stacked(true);
    parameters.set_stacked_transposed(true);
  }
  return model;
}

namespace {

// Where the folder has codes of some.
void report_quantized(const checkpoints::ModelFolder& files, const WeightTable& table) {
  if (files.form() == nullptr) return;
  log_info(
      fmt::format("[{}] {} matrices are quantized ({}); they are read as the numbers that this means, and "
                  "models that are saved hold them in the dtype of the model",
                  files.path(), checkpoints::count_quantized(files, table), files.form()->name()));
}

// Once in a process: it may load a model more than once.
void report_unread(const std::string& folder) {
  static std::mutex mutex;
  static std::set<std::string> reported;
  const std::vector<std::string> unread = checkpoints::unread_weights(folder);
  const std::lock_guard lock(mutex);
  if (!unread.empty() && reported.insert(folder).second)
    log_info(fmt::format("[{}] files with weights that are not read: {} ({})", folder, unread.size(),
                         checkpoints::list_some(unread)));
}

void report_kept(const checkpoints::ModelFolder& files, const layers::DecoderConfig& architecture) {
  const WeightTable table = layers::decoder_weight_table(architecture);
  std::vector<std::string> kept = checkpoints::kept_names(files, table);
  if (const std::string code = checkpoints::kept_code(files, table); !code.empty())
    log_warning(
        fmt::format("[{}] '{}' belongs to codes of a tower that is quantized: adapters can be trained, but a "
                    "model cannot be saved from this folder",
                    files.path(), code));
  if (architecture.published.text) {
    const auto of_tower = std::erase_if(kept, [](const std::string& name) { return is_of_tower(name); });
    log_info(fmt::format(
        "[{}] text of a model that also reads pictures; {} tensors of the tower are kept as they are",
        files.path(), of_tower));
  }
  if (!kept.empty())
    log_info(
        fmt::format("[{}] {} tensors are not part of the model that is computed, '{}' for example; they are "
                    "written back as they are when the model is saved",
                    files.path(), kept.size(), kept.front()));
}

}  // namespace

DType dtype_of_folder(const std::string& folder) {
  const std::string file = join_path(folder, "config.json");
  return dtype_of_config(Json::parse_file(file), file);
}

std::unique_ptr<Model> load_model(const std::string& folder, const BuildOptions& options) {
  if (!is_directory(folder)) fail("[{}] {}", folder, checkpoints::no_model_folder(folder));
  const std::string where = join_path(folder, "config.json");
  const Json config = config_of_folder(folder);
  // Checked first: what does not fit is reported before memory is taken.
  const layers::DecoderConfig architecture = configure_built(config, where, options);
  const auto files = checkpoints::ModelFolder::open(folder);
  checkpoints::check_weights(files, layers::decoder_weight_table(architecture));
  if (options.quantize.any() && !options.quantized_as_read) checkpoints::check_not_quantized(folder);
  report_unused(config, where);
  report_unread(folder);
  report_kept(files, architecture);
  if (checkpoints::holds_mxfp4(files, layers::decoder_weight_table(architecture)))
    log_info(
        fmt::format("[{}] the experts are in MXFP4; they are read as the numbers that this means, and models "
                    "that are saved hold them in the dtype of the model",
                    folder));
  report_quantized(files, layers::decoder_weight_table(architecture));
  auto model = build_model(config, where, options);
  model->folder = folder;
  auto& parameters = model->decoder.parameters();
  parameters.set_stacked(checkpoints::holds_stacked(files, parameters.table()));
  parameters.set_stacked_transposed(checkpoints::holds_transposed(files, parameters.table()));
  parameters.set_read_dtypes(checkpoints::read_dtypes(files, parameters.table()));
  if (files.text_names()) parameters.set_text_names(files.text_names());
  int64_t kept = 0;
  const auto take_nf4 = [&](const WeightSpec& spec, int64_t first, const quant::Nf4& matrix) {
    const bool taken = parameters.set_nf4(spec.name, first, matrix);
    kept += taken ? 1 : 0;
    return taken;
  };
  checkpoints::load_rows(
      files, parameters.table(), parameters.layout(),
      [&](const WeightSpec& spec, int64_t first, const Tensor& rows) {
        parameters.set_rows(spec.name, first, rows);
      },
      options.base_dtype && primitives::is_nf4(*options.base_dtype) ? checkpoints::TakeNf4(take_nf4)
                                                                    : checkpoints::TakeNf4());
  if (kept > 0)
    log_info(fmt::format("[{}] {} of them are in NF4 already: they keep their codes (model.base_dtype)",
                         folder, kept));
  return model;
}

Json config_in_files(const Json& config, const layers::DecoderConfig& architecture) {
  return architecture.published.text ? tied_in_both_places(config, architecture.tied_head) : config;
}

void save_model(const Model& model, const std::string& folder, const std::string& files_from,
                const std::function<Tensor(size_t)>& whole) {
  const auto& parameters = model.decoder.parameters();
  checkpoints::SaveOptions options;
  options.dtype = parameters.dtype();
  options.original = files_from;
  std::optional<checkpoints::ModelFolder> read;
  if (!model.folder.empty() && parameters.table().keeps_some())
    options.kept = &read.emplace(checkpoints::ModelFolder::open(model.folder));
  checkpoints::save_model(
      folder, parameters.table(),
      [&](const WeightSpec& spec) {
        return whole ? whole(static_cast<size_t>(&spec - parameters.table().specs().data()))
                     : parameters.value(spec.name);
      },
      config_in_files(model.config, model.decoder.config()), options);
}

}  // namespace temper::models
