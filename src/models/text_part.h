#pragma once
#include <string>
#include <vector>

#include "base/json/json.h"

namespace temper::models {

// What a family that also reads pictures has for its text: another family's decoder, whose keys are in
// text_config, or at the top level with those of pictures where a published file has no text_config.
struct TextPart {
  const char* model_type;       // of the text, where text_config does not say
  const char* defaults = "{}";  // an object: of keys that readers need and published files leave out
};

// A configuration as a family of text reads it, and how errors call it.
struct TextConfig {
  Json json;
  std::string where;
};
TextConfig text_config(const Json& config, const std::string& where, const TextPart& part);

// The top-level keys that are neither the text's nor known to be of pictures.
std::vector<std::string> unused_top_level_keys(const Json& config);

// Whether the head's weight is the embedding's stands at the top or in text_config, and libraries read it at
// one of these places. Where they contradict each other the head is a tensor of its own.
bool says_tied_differently(const Json& config);
Json tied_in_both_places(Json config, bool tied);

}  // namespace temper::models
