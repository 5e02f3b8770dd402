#pragma once
#include <optional>
#include <string>

#include "data/chat/chat.h"

namespace temper::data {

// What one message wrote in a text.
struct Words {
  ByteSpan around;   // from its first byte to its last
  std::string text;  // the bytes themselves, without what the template wrote between
};

std::optional<Words> words_of(const RenderedChat& chat, size_t message);  // none where it wrote nothing

// How many bytes but white space came from there.
size_t bytes_of(const RenderedChat& chat, templates::Source source);
size_t count_bytes(std::string_view text);  // but white space (ASCII)

}  // namespace temper::data
