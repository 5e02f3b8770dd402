#include "models/text_part.h"

#include <algorithm>
#include <set>

#include "base/error.h"

namespace temper::models {
namespace {

constexpr const char *kText = "text_config", *kTied = "tie_word_embeddings", *kType = "model_type",
                     *kQuantized = "quantization_config";

// Of towers, and of where their rows stand between tokens; some also stand in text_config, or for both.
const std::set<std::string, std::less<>> kOfPictures = {"vision_config",
                                                        "image_token_id",
                                                        "image_token_index",
                                                        "video_token_id",
                                                        "video_token_index",
                                                        "vision_start_token_id",
                                                        "vision_end_token_id",
                                                        "vision_token_id",
                                                        "vision_feature_layer",
                                                        "boi_token_index",
                                                        "eoi_token_index",
                                                        "mm_tokens_per_image",
                                                        "multimodal_projector_bias",
                                                        "projector_hidden_act",
                                                        "spatial_merge_size",
                                                        "language_model_only"};
// Keys at the top level that text_config has, too; those of text_config count.
const std::set<std::string, std::less<>> kOfBoth = {
    kText, kTied, kQuantized, "initializer_range", "bos_token_id", "eos_token_id", "pad_token_id"};

const Json* bool_of(const Json& config, const char* key) {
  const Json* value = config.find(key);
  return value != nullptr && value->is_bool() ? value : nullptr;
}

const Json* text_of(const Json& config) {
  const Json* text = config.is_object() ? config.find(kText) : nullptr;
  return text != nullptr && !text->is_null() ? text : nullptr;
}

}  // namespace

TextConfig text_config(const Json& config, const std::string& where, const TextPart& part) {
  const Json* const nested = text_of(config);
  if (nested != nullptr && !nested->is_object())
    fail("[{}] {} is {}, expected an object", where, kText, nested->kind_name());
  TextConfig text{Json::parse(part.defaults, part.model_type), where};
  if (nested != nullptr) text.where += ": text_config";
  for (const auto& [key, value] : (nested != nullptr ? *nested : config).as_object())
    if (nested != nullptr || !(kOfPictures.contains(key) || key == kType || key == kText))
      text.json.set(key, value);
  if (text.json.find(kType) == nullptr) text.json.set(kType, part.model_type);
  if (nested == nullptr) return text;
  if (const Json* how = config.find(kQuantized); how != nullptr && nested->find(kQuantized) == nullptr)
    text.json.set(kQuantized, *how);
  if (says_tied_differently(config))
    text.json.set(kTied, false);
  else if (const Json* tied = bool_of(config, kTied))
    text.json.set(kTied, *tied);
  return text;
}

std::vector<std::string> unused_top_level_keys(const Json& config) {
  std::vector<std::string> keys;
  if (text_of(config) == nullptr) return keys;
  for (const auto& [key, value] : config.as_object())
    if (!kOfPictures.contains(key) && !kOfBoth.contains(key)) keys.push_back(key);
  return keys;
}

bool says_tied_differently(const Json& config) {
  const Json* const nested = text_of(config);
  if (nested == nullptr || !nested->is_object()) return false;
  const Json *top = bool_of(config, kTied), *own = bool_of(*nested, kTied);
  return top != nullptr && own != nullptr && *top != *own;
}

Json tied_in_both_places(Json config, bool tied) {
  const Json* const nested = text_of(config);
  if (nested == nullptr) return config;
  Json text = *nested;
  text.set(kTied, tied);
  config.set(kText, std::move(text));
  config.set(kTied, tied);
  return config;
}

}  // namespace temper::models
