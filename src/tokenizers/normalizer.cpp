#include "tokenizers/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "base/error.h"
#include "tokenizers/component.h"

namespace temper::tokenizers {
namespace {

// Characters below U+0300 (lead bytes below 0xCC) never change in form C.
bool surely_composed(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte < 0xCC;
  });
}

}  // namespace

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
  if (!nfc_ || surely_composed(text)) return std::string(text);
  utf8proc_uint8_t* mapped = nullptr;
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  const auto size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                 static_cast<utf8proc_ssize_t>(text.size()), &mapped, options);
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(mapped, &std::free);
  if (size < 0) fail("[normalizer] a text of {} bytes: {}", text.size(), utf8proc_errmsg(size));
  return {reinterpret_cast<const char*>(mapped), static_cast<size_t>(size)};
}

}  // namespace temper::tokenizers
