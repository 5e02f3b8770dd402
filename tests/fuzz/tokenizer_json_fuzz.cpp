// The input is a JSON object, a line end and a text. The object's members replace those of a small
// tokenizer.json: whole parts, or members of "model"; "vocab" and "merges" add to those that are there. The
// text is encoded and decoded.
#include <cstdint>

#include "base/error.h"
#include "base/json/json.h"
#include "base/utf8.h"
#include "tokenizers/text/byte_level.h"
#include "tokenizers/tokenizer.h"

namespace temper::tokenizers {
namespace {

Json base_file() {
  Json::Object vocab;
  for (int byte = 0; byte < 256; ++byte)
    vocab.emplace_back(spelling_of_bytes(std::string(1, static_cast<char>(byte))), byte);
  for (const char* token : {"ab", "abc", "Ġa"}) vocab.emplace_back(token, static_cast<int>(vocab.size()));
  const Json byte_level =
      Json::Object{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
  return Json::Object{
      {"added_tokens", Json::Array{Json::Object{{"id", 300}, {"content", "<s>"}, {"special", true}}}},
      {"normalizer", nullptr},
      {"pre_tokenizer", byte_level},
      {"post_processor", nullptr},
      {"decoder", byte_level},
      {"model",
       Json::Object{{"type", "BPE"}, {"vocab", vocab}, {"merges", Json::Array{"a b", "ab c", "Ġ a"}}}}};
}

// Members of `change` in the place of those of `base`; below "model" one level deeper.
Json merged(Json base, const Json& change, int levels) {
  if (!change.is_object() || !base.is_object()) return change;
  for (const auto& [key, value] : change.as_object()) {
    const Json* old = base.find(key);
    const bool adds = key == "vocab" && old && old->is_object() && value.is_object();
    const bool appends = key == "merges" && old && old->is_array() && value.is_array();
    if (adds || (levels > 0 && key == "model" && old)) {
      base.set(key, merged(*old, value, 0));
    } else if (appends) {
      Json::Array all = old->as_array();
      all.insert(all.end(), value.as_array().begin(), value.as_array().end());
      base.set(key, std::move(all));
    } else {
      base.set(key, value);
    }
  }
  return base;
}

void check_offsets(const Tokenizer& tokenizer, std::string_view text, const std::vector<int32_t>& ids,
                   bool special) {
  if (replace_invalid_utf8(text) != text) return;
  const Encoding encoding = tokenizer.encode_with_offsets(text, special);
  invariant(encoding.ids == ids, "encode and encode_with_offsets differ");
  invariant(encoding.spans.size() == ids.size(), "there is not one span for each id");
  for (const ByteSpan& span : encoding.spans)
    invariant(span.begin <= span.end && span.end <= text.size(), "a span lies outside of the text");
}

void check(const Tokenizer& tokenizer, std::string_view text) {
  for (const bool special : {false, true}) {
    const std::vector<int32_t> ids = tokenizer.encode(text, special);
    for (const int32_t id : ids) {
      invariant(id >= 0, "an id is negative");
      tokenizer.token_text(id);
      tokenizer.is_special(id);
    }
    check_offsets(tokenizer, text, ids, special);
    if (special) continue;  // they decode like the others
    const std::string decoded = tokenizer.decode(ids);
    invariant(replace_invalid_utf8(decoded) == decoded, "decoded text is not UTF-8");
    StreamDecoder stream(tokenizer, false);
    std::string streamed;
    for (const int32_t id : ids) streamed += stream.push(id);
    streamed += stream.finish();
    invariant(streamed == decoded, "the stream decodes to another text");
  }
}

// What the file itself does not change comes back as it was.
void check_base(std::string_view text) {
  static const Tokenizer kBase = Tokenizer::from_parsed(base_file(), "base");
  const std::string decoded = kBase.decode(kBase.encode(text));
  invariant(decoded == replace_invalid_utf8(text), "decode(encode(text)) is not the text");
}

void try_tokenizer(std::string_view input) {
  static const Json kBase = base_file();
  const size_t end = std::min(input.find('\n'), input.size());
  const std::string_view text = input.substr(std::min(end + 1, input.size()));
  check_base(text);
  try {
    const Json change = Json::parse(input.substr(0, end), "input");
    if (!change.is_object()) return;
    check(Tokenizer::from_parsed(merged(kBase, change, 1), "input"), text);
  } catch (const Error& error) {
    invariant(error.kind() == ErrorKind::kInput, error.what());
  }
}

}  // namespace
}  // namespace temper::tokenizers

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  temper::tokenizers::try_tokenizer({reinterpret_cast<const char*>(data), size});
  return 0;
}
