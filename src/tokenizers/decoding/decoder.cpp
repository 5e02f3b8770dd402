#include "tokenizers/decoding/decoder.h"

#include "base/error.h"
#include "tokenizers/decoding/decoder_stages.h"
#include "tokenizers/text/component.h"

namespace temper::tokenizers {

Decoder Decoder::from_json(const Json& json, std::string_view where) {
  Decoder decoder;
  bool fused = false;
  for_each_component(json, "decoders", where, [&](const Json& part, const std::string& place) {
    const std::string& type = component_type(part, place);
    if (fused && type != "Strip" && type != "Fuse")
      fail("{}.type is '{}', after Fuse; only Strip may come after Fuse", place, type);
    if (type == "Fuse")
      fused = true;
    else
      decoder.stages_.push_back(make_decoder_stage(part, fused, place));
    decoder.byte_level_ |= type == "ByteLevel";
  });
  if (decoder.byte_level_ && decoder.stages_.size() != 1)
    fail("{} must contain only ByteLevel, found {} decoders", where, decoder.stages_.size());
  if (json.is_null()) decoder.stages_.push_back(make_spaced_stage());
  return decoder;
}

void Decoder::run(size_t stage, std::string_view token, DecoderState& state, std::string& out) const {
  if (stage == stages_.size()) {
    out += token;
    return;
  }
  const auto next = [&](std::string_view part) { run(stage + 1, part, state, out); };
  stages_[stage]->push(token, state.stages[stage], next);
}

void Decoder::push(std::string_view spelling, DecoderState& state, std::string& out) const {
  run(0, spelling, state, out);
}

void Decoder::finish(DecoderState& state, std::string& out) const {
  for (size_t stage = 0; stage < stages_.size(); ++stage) {
    const auto next = [&](std::string_view part) { run(stage + 1, part, state, out); };
    stages_[stage]->finish(state.stages[stage], next);
  }
}

std::string Decoder::token_bytes(std::string_view spelling) const {
  std::string token(spelling);
  for (const auto& stage : stages_)
    if (!stage->map(token)) break;
  return token;
}

}  // namespace temper::tokenizers
