#include "checkpoints/files/other_files.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <mutex>

#include "base/error.h"
#include "base/files.h"
#include "base/json/json.h"
#include "base/log.h"
#include "checkpoints/files/names.h"

namespace temper::checkpoints {
namespace {

constexpr const char *kSingle = "model.safetensors", *kIndex = "model.safetensors.index.json";

// What config.json and the weights of the saved folder stand for.
bool is_replaced(std::string_view name) {
  constexpr std::array<std::string_view, 6> kReplaced = {
      "config.json",          "model.safetensors",    "model.safetensors.index.json",
      "hf_quant_config.json", "quantize_config.json", "quant_config.json"};
  return std::find(kReplaced.begin(), kReplaced.end(), name) != kReplaced.end() ||
         (name.starts_with("model-") && name.ends_with(".safetensors"));
}

// By its name.
bool holds_weights(std::string_view name) {
  constexpr std::array<std::string_view, 6> kEndings = {".safetensors", ".gguf",    ".pth",
                                                        ".h5",          ".msgpack", ".onnx"};
  if (std::any_of(kEndings.begin(), kEndings.end(), [&](auto ending) { return name.ends_with(ending); }))
    return !name.starts_with("rng_state");
  // Trainers leave others: training_args.bin, optimizer.pt.
  return name.ends_with(".bin") && (name.starts_with("pytorch_model") || name.starts_with("adapter_model"));
}

}  // namespace

std::vector<std::string> unread_weights(const std::string& folder) {
  const bool is_single = exists(join_path(folder, kSingle));
  std::set<std::string> read = {kSingle};
  if (const std::string index = join_path(folder, kIndex); !is_single && exists(index))
    if (const Json json = Json::parse_file(index); json.find("weight_map") != nullptr)
      for (const auto& [name, file] : json.at("weight_map").as_object()) read.insert(file.as_string());
  std::vector<std::string> unread;
  for (const std::string& name : list_directory(folder))
    if (holds_weights(name) && !read.contains(name)) unread.push_back(name);
  return unread;
}

bool is_of_license(std::string_view name) {
  constexpr std::array<std::string_view, 5> kNames = {"license", "licence", "notice", "copying",
                                                      "use_policy"};
  std::string lower(name);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return std::any_of(kNames.begin(), kNames.end(), [&](auto begin) { return lower.starts_with(begin); });
}

void report_left_out(const std::string& original, const std::set<std::string>& saved) {
  static std::mutex mutex;
  static std::set<std::string> reported;
  const std::lock_guard lock(mutex);
  if (original.empty() || !is_directory(original) || !reported.insert(original).second) return;
  std::vector<std::string> left_out;
  for (const std::string& name : list_directory(original))
    if (!name.starts_with('.') && !is_replaced(name) && !saved.contains(name))
      left_out.push_back(is_directory(join_path(original, name)) ? name + "/" : name);
  if (!left_out.empty())
    log_info(fmt::format("[{}] of its files {} are not in the folder of the model that is saved: {}",
                         original, left_out.size(), list_some(left_out)));
}

}  // namespace temper::checkpoints
