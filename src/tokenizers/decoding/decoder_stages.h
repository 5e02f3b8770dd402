#pragma once
#include <memory>
#include <string>

#include "base/json/json.h"
#include "tokenizers/decoding/decoder.h"

namespace temper::tokenizers {

// The stage that a component describes; `fused`: all tokens before it are one.
std::unique_ptr<const DecoderStage> make_decoder_stage(const Json& component, bool fused,
                                                       const std::string& place);
std::unique_ptr<const DecoderStage> make_spaced_stage();  // without a decoder: tokens with spaces between

}  // namespace temper::tokenizers
