#include "tokenizers/normalizer.h"

#include "base/error.h"
#include "tokenizers/component.h"
#include "tokenizers/nfc.h"

namespace temper::tokenizers {

Normalizer Normalizer::from_json(const Json& json, std::string_view where) {
  Normalizer normalizer;
  for_each_component(json, "normalizers", where, [&](const Json& component, const std::string& place) {
    const std::string& type = component_type(component, place);
    if (type != "NFC") refuse_component(place, type, "NFC, Sequence");
    normalizer.nfc_ = true;
  });
  return normalizer;
}

std::string Normalizer::normalize(std::string_view text) const {
  std::string buffer;
  return std::string(normalize(text, buffer));
}

std::string_view Normalizer::normalize(std::string_view text, std::string& buffer) const {
  if (unchanged_prefix(text) == text.size()) return text;
  buffer.clear();
  append_composed(buffer, text);
  return buffer;
}

size_t Normalizer::unchanged_prefix(std::string_view text) const {
  return nfc_ ? composed_prefix(text) : text.size();
}

}  // namespace temper::tokenizers
