#pragma once
#include <array>
#include <string>
#include <utility>

#include "layers/decoder.h"

// What the decoder's modules are called, for its own files.
namespace temper::layers {

std::string scope_of(size_t layer);  // "layers.3."

enum Place { kBeforeMixer, kAfterMixer, kBeforeChannel, kAfterChannel };

// The norms of a layer by place: their modules, and their names in files.
std::array<std::pair<const char*, const std::string*>, 4> modules_of(const LayerNorms& norms);

// Of the first channel that chooses experts; all of them choose alike. Null: none does.
const ops::Routing* routing_of(const DecoderConfig& config);

}  // namespace temper::layers
