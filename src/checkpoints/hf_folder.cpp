#include "checkpoints/hf_folder.h"

#include <map>
#include <unordered_set>

#include "base/error.h"
#include "base/hub_name.h"
#include "base/text.h"
#include "checkpoints/files/names.h"
#include "weights/lora.h"

namespace temper::checkpoints {
namespace {

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kAdapter = "adapter_model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

// file → the tensors that the index maps to it.
using ShardMap = std::map<std::string, std::vector<std::string>>;

ShardMap read_index(const std::string& path) {
  const Json index = Json::parse_file(path);
  const Json* weight_map = index.find("weight_map");
  if (weight_map == nullptr || !weight_map->is_object())
    fail(
        "[{}] found no object 'weight_map', expected tensor names with their files; download the index again",
        path);
  ShardMap shards;
  for (const auto& [name, file] : weight_map->as_object()) {
    if (!file.is_string())
      fail("[{}] tensor '{}': found {}, expected a file name", path, name, file.kind_name());
    if (!is_plain_name(file.as_string()))
      fail(
          "[{}] tensor '{}': found the file '{}', expected a plain name inside the folder; do not trust this "
          "index",
          path, name, file.as_string());
    shards[file.as_string()].push_back(name);
  }
  return shards;
}

void check_shard(const SafetensorsFile& file, const std::vector<std::string>& mapped,
                 const std::string& index) {
  std::vector<std::string> absent, unmapped;
  std::unordered_set<std::string_view> known;
  for (const std::string& name : mapped) {
    known.insert(name);
    if (file.find(name) == nullptr) absent.push_back(name);
  }
  for (const TensorEntry& entry : file.entries())
    if (!known.contains(entry.name)) unmapped.push_back(entry.name);
  if (!absent.empty())
    fail("[{}] the tensors {} are expected in {}, which does not hold them; download both again", index,
         list_some(absent), file.path());
  if (!unmapped.empty())
    fail("[{}] the tensors {} are found in {}, but {} does not map them to it; download both again",
         file.path(), list_some(unmapped), file_name(file.path()), file_name(index));
}

}  // namespace

std::string no_model_folder(const std::string& path) {
  const std::string said = "is not a folder; expected a model in Hugging Face format";
  const std::string advice = hub_advice(path, "model");
  return advice.empty() ? said : fmt::format("{}; {}", said, advice);
}

ModelFolder ModelFolder::open(const std::string& path) {
  if (!exists(path))
    fail("[{}] no such folder; expected a model folder with config.json and {}", path, kSingle);
  if (!is_directory(path)) fail("[{}] is a file, expected the model folder that holds it", path);
  ModelFolder folder;
  folder.path_ = path;
  if (const std::string single = join_path(path, kSingle); exists(single))
    folder.files_.emplace_back(single);
  else if (const std::string index = join_path(path, kIndex); exists(index))
    folder.open_shards(index);
  else
    folder.fail_without_weights();
  folder.read_text_names();
  folder.index_names(
      [&](const std::string& name) { return folder.text_names_ ? name_in_table(name) : name; });
  folder.form_ = quantized_form_of(path);
  return folder;
}

ModelFolder ModelFolder::open_adapter(const std::string& path, const WeightTable& base) {
  const std::string file = join_path(path, kAdapter);
  if (!exists(file)) {
    if (exists(join_path(path, "adapter_model.bin")))
      fail("[{}] found adapter_model.bin, expected {}; save the adapter again as safetensors", path,
           kAdapter);
    fail("[{}] found no {}, expected an adapter's folder as PEFT writes it", path, kAdapter);
  }
  ModelFolder folder;
  folder.path_ = path;
  folder.remedy_ = "the adapter was made for another base model, or its file for another configuration";
  folder.files_.emplace_back(file);
  folder.index_names([&](const std::string& name) {
    if (!name.starts_with(kAdapterPrefix)) return name;
    return std::string(kAdapterPrefix) + base.own_name(name.substr(kAdapterPrefix.size()));
  });
  return folder;
}

void ModelFolder::index_names(const std::function<std::string(const std::string& in_file)>& own_name) {
  for (size_t i = 0; i < files_.size(); ++i)
    for (const TensorEntry& entry : files_[i].entries()) {
      std::string name = own_name(entry.name);
      const auto [other, added] = places_.try_emplace(name, Place{i, entry.name});
      if (!added)
        fail("[{}] '{}' and '{}' are names of one tensor; keep one of them", path_, other->second.name,
             entry.name);
      names_.push_back(std::move(name));
    }
}

// The way of the first tensor of the text; all are read in each of the ways.
void ModelFolder::read_text_names() {
  const std::string config = join_path(path_, "config.json");
  if (!exists(config)) return;
  const Json json = Json::parse_file(config);
  const Json* type = json.is_object() ? json.find("model_type") : nullptr;
  if (type == nullptr || !type->is_string()) return;
  text_names_ = published_text_names(type->as_string());
  if (!text_names_) return;
  for (const SafetensorsFile& file : files_)
    for (const TensorEntry& entry : file.entries())
      if (const auto names = text_names_of(entry.name)) {
        text_names_ = names;
        return;
      }
}

void ModelFolder::open_shards(const std::string& index_path) {
  const ShardMap shards = read_index(index_path);
  std::vector<std::string> missing;
  for (const auto& [file, names] : shards)
    if (!exists(join_path(path_, file))) missing.push_back(file);
  if (!missing.empty())
    fail("[{}] {} of {} shards are missing: {}; download them into the folder", index_path, missing.size(),
         shards.size(), list_some(missing));
  for (const auto& [file, names] : shards) {
    files_.emplace_back(join_path(path_, file));
    check_shard(files_.back(), names, index_path);
  }
}

void ModelFolder::fail_without_weights() const {
  std::vector<std::string> safetensors, pickles, adapters, gguf;
  for (const std::string& name : list_directory(path_)) {
    if (name == kAdapter)
      adapters.push_back(name);
    else if (name.ends_with(".safetensors"))
      safetensors.push_back(name);
    else if (name.ends_with(".gguf"))
      gguf.push_back(name);
    else if (name.ends_with(".bin") || name.ends_with(".pt") || name.ends_with(".pth"))
      pickles.push_back(name);
  }
  const std::string expected = fmt::format("expected {} or {}", kSingle, kIndex);
  if (!safetensors.empty())
    fail("[{}] found {}, {}; download the index too, or rename a single file to {}", path_,
         list_some(safetensors), expected, kSingle);
  if (!adapters.empty())
    fail("[{}] found an adapter (adapter_model.safetensors), {}; name its base model's folder", path_,
         expected);
  if (!pickles.empty())
    fail(
        "[{}] found only {}, {}; convert to safetensors (in Python: AutoModelForCausalLM.from_pretrained(IN)"
        ".save_pretrained(OUT))",
        path_, list_some(pickles), expected);
  if (!gguf.empty())
    fail("[{}] found only {}, {}; download the model in its original format", path_, list_some(gguf),
         expected);
  fail("[{}] found no weights, {}; is this the model's folder?", path_, expected);
}

Json ModelFolder::config() const { return read_model_config(path_); }

namespace {

// The folders of adapters that a run has trained, which may be the run of one adapter.
std::vector<std::string> adapters_of_run(const std::string& run) {
  std::vector<std::string> all;
  const auto add = [&](const std::string& folder) {
    if (const std::string adapter = join_path(folder, "adapter");
        exists(join_path(adapter, "adapter_config.json")))
      all.push_back(adapter);
  };
  add(run);
  if (const std::string each = join_path(run, "adapters"); is_directory(each))
    for (const std::string& name : list_directory(each)) add(join_path(each, name));
  return all;
}

// "name its base model's folder, BASE, and this one with --adapter FOLDER"
std::string advice_for_adapter(const std::string& adapter) {
  const Json config = Json::parse_file(join_path(adapter, "adapter_config.json"));
  const Json* base = config.is_object() ? config.find("base_model_name_or_path") : nullptr;
  const bool known = base != nullptr && base->is_string() && !base->as_string().empty();
  return fmt::format("name its base model's folder{}, and the adapter with --adapter {}",
                     known ? ", " + base->as_string() : "", adapter);
}

std::string advice_for_run(const std::string& run) {
  if (const std::string model = join_path(run, "model"); is_directory(model))
    return fmt::format("its model is {}", model);
  const std::vector<std::string> adapters = adapters_of_run(run);
  if (adapters.empty())
    return fmt::format("it has no model: temper export {} FOLDER writes one that was quantized", run);
  return fmt::format("it trained {}: {}{}", adapters.size() == 1 ? "an adapter" : "adapters",
                     advice_for_adapter(adapters.front()),
                     adapters.size() == 1 ? "" : fmt::format(" (there are {})", list_some(adapters)));
}

}  // namespace

Json read_model_config(const std::string& folder) {
  const std::string file = join_path(folder, "config.json");
  if (!exists(file) && exists(join_path(folder, "adapter_config.json")))
    fail("[{}] is an adapter's folder, expected a model's with config.json; {} (of a run: adapters[].from)",
         folder, advice_for_adapter(folder));
  if (!exists(file) && exists(join_path(folder, "config.yaml")))
    fail("[{}] is the folder of a run, expected a model's with config.json; {}", folder,
         advice_for_run(folder));
  return Json::parse_file(file);
}

std::string ModelFolder::name_in_files(std::string_view name) const {
  return text_names_ ? temper::name_in_files(name, *text_names_) : std::string(name);
}

const TensorEntry* ModelFolder::find(std::string_view name) const {
  const auto found = places_.find(std::string(name));
  return found == places_.end() ? nullptr : files_[found->second.file].find(found->second.name);
}

const ModelFolder::Place& ModelFolder::place_of(std::string_view name) const {
  const auto found = places_.find(std::string(name));
  if (found == places_.end())
    fail("[{}] tensor '{}': not in this folder of {} tensors; the nearest name is '{}'", path_, name,
         names_.size(), nearest_tensor(name, names_));
  return found->second;
}

Tensor ModelFolder::tensor(std::string_view name) const {
  const Place& place = place_of(name);
  return files_[place.file].tensor(place.name);
}

void ModelFolder::release(std::string_view name, const Tensor& view) const {
  files_[place_of(name).file].release(view);
}

}  // namespace temper::checkpoints
