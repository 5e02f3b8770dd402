#include "tokenizers/decoding/decoder_stages.h"

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizers/splitting/metaspace.h"
#include "tokenizers/text/byte_level.h"
#include "tokenizers/text/component.h"
#include "tokenizers/text/replacement.h"
#include "tokenizers/tokens/byte_tokens.h"

namespace temper::tokenizers {
namespace {

using Emit = DecoderStage::Emit;
using State = DecoderStage::State;

constexpr std::string_view kUnreadable = "\uFFFD";

// A stage that looks at one token at a time.
class MapStage : public DecoderStage {
 public:
  void push(std::string_view token, State&, const Emit& emit) const override {
    std::string text(token);
    map(text);
    emit(text);
  }
};

class ReplaceStage : public MapStage {
 public:
  ReplaceStage(const Json& component, const std::string& place) : replacement_(component, place) {}
  bool map(std::string& token) const override {
    token = replacement_.run(token, false).text;
    return true;
  }

 private:
  Replacement replacement_;
};

struct StripOptions {
  std::string content;  // one character
  size_t start = 0, stop = 0;
};

// Removes up to `start` characters in front of each token and up to `stop` behind.
class StripStage : public MapStage {
 public:
  explicit StripStage(StripOptions options) : options_(std::move(options)) {}
  bool map(std::string& token) const override {
    std::string_view text = token;
    for (size_t i = 0; i < options_.start && text.starts_with(options_.content); ++i)
      text.remove_prefix(options_.content.size());
    for (size_t i = 0; i < options_.stop && text.ends_with(options_.content); ++i)
      text.remove_suffix(options_.content.size());
    token = std::string(text);
    return true;
  }

 private:
  StripOptions options_;
};

// The same for all tokens as one: what may be the end is held back.
class FusedStripStage : public DecoderStage {
 public:
  explicit FusedStripStage(StripOptions options) : options_(std::move(options)) {}

  void push(std::string_view token, State& state, const Emit& emit) const override {
    while (state.count < options_.start && token.starts_with(options_.content)) {
      token.remove_prefix(options_.content.size());
      ++state.count;
    }
    if (token.empty()) return;
    state.count = options_.start;
    state.held += token;
    size_t ready = state.held.size();
    for (size_t i = 0; i < options_.stop && held_ends(state.held, ready); ++i)
      ready -= options_.content.size();
    if (ready > 0) emit(std::string_view(state.held).substr(0, ready));
    state.held.erase(0, ready);
  }
  bool map(std::string&) const override { return true; }  // a token inside the text

 private:
  bool held_ends(std::string_view held, size_t at) const {
    return held.substr(0, at).ends_with(options_.content);
  }
  StripOptions options_;
};

class MetaspaceStage : public DecoderStage {
 public:
  explicit MetaspaceStage(MetaspaceOptions options) : options_(std::move(options)) {}

  void push(std::string_view token, State& state, const Emit& emit) const override {
    const bool drops = state.count++ == 0 && options_.prepend != PrependScheme::kNever;
    emit(written(token, drops ? "" : " "));
  }
  bool map(std::string& token) const override {
    token = written(token, " ");
    return true;
  }

 private:
  std::string written(std::string_view token, std::string_view mark) const {
    std::string out;
    for (size_t at = 0; at < token.size();) {
      const size_t next = std::min(token.find(options_.replacement, at), token.size());
      out += token.substr(at, next - at);
      if (next < token.size()) out += mark;
      at = next + options_.replacement.size();
    }
    return out;
  }
  MetaspaceOptions options_;
};

// A run of tokens like <0x0A> is text when all of its bytes are UTF-8, and else one U+FFFD for each byte.
class ByteFallbackStage : public DecoderStage {
 public:
  void push(std::string_view token, State& state, const Emit& emit) const override {
    if (const auto byte = byte_of_spelling(token)) {
      state.held += *byte;
      return;
    }
    finish(state, emit);
    emit(token);
  }
  void finish(State& state, const Emit& emit) const override {
    if (state.held.empty()) return;
    const std::string bytes = std::exchange(state.held, {});
    if (is_utf8(bytes)) return emit(bytes);
    for (size_t i = 0; i < bytes.size(); ++i) emit(kUnreadable);
  }
  bool map(std::string& token) const override {
    const auto byte = byte_of_spelling(token);
    if (byte) token = std::string(1, *byte);
    return !byte;
  }

 private:
  static bool is_utf8(std::string_view bytes) {
    for (; !bytes.empty(); bytes.remove_prefix(next_utf8(bytes).size))
      if (next_utf8(bytes).kind != Utf8Kind::kValid) return false;
    return true;
  }
};

class ByteLevelStage : public DecoderStage {
 public:
  void push(std::string_view token, State& state, const Emit& emit) const override {
    state.held += bytes_of_spelling(token);
    size_t ready = 0;
    while (ready < state.held.size()) {
      const Utf8Step step = next_utf8(std::string_view(state.held).substr(ready));
      if (step.kind == Utf8Kind::kIncomplete) break;
      ready += step.size;
    }
    emit(replace_invalid_utf8(std::string_view(state.held).substr(0, ready)));
    state.held.erase(0, ready);
  }
  void finish(State& state, const Emit& emit) const override {
    emit(replace_invalid_utf8(std::exchange(state.held, {})));
  }
  bool map(std::string& token) const override {
    token = bytes_of_spelling(token);
    return false;
  }
};

class SpacedStage : public DecoderStage {
 public:
  void push(std::string_view token, State& state, const Emit& emit) const override {
    if (state.count++ > 0) emit(" ");
    emit(token);
  }
  bool map(std::string&) const override { return true; }
};

size_t count_option(const Json& component, std::string_view key, const std::string& place) {
  const Json& value = required(component, key, place);
  if (!value.is_int() || value.as_int() < 0)
    fail("{}.{} must be a count, found {}", place, key, value.dump());
  return static_cast<size_t>(value.as_int());
}

StripOptions strip_options(const Json& component, const std::string& place) {
  StripOptions options{as_text(required(component, "content", place), place + ".content"),
                       count_option(component, "start", place), count_option(component, "stop", place)};
  if (options.content.empty() || next_utf8(options.content).size != options.content.size())
    fail("{}.content must be one character, found '{}'", place, options.content);
  return options;
}

}  // namespace

std::unique_ptr<const DecoderStage> make_decoder_stage(const Json& component, bool fused,
                                                       const std::string& place) {
  const std::string& type = component_type(component, place);
  if (type == "ByteLevel") return std::make_unique<ByteLevelStage>();
  if (type == "ByteFallback") return std::make_unique<ByteFallbackStage>();
  if (type == "Replace") return std::make_unique<ReplaceStage>(component, place);
  if (type == "Metaspace")
    return std::make_unique<MetaspaceStage>(MetaspaceOptions::from_json(component, place));
  if (type != "Strip")
    refuse_component(place, type, "ByteLevel, Replace, ByteFallback, Fuse, Strip, Metaspace, Sequence");
  const StripOptions options = strip_options(component, place);
  if (fused) return std::make_unique<FusedStripStage>(options);
  return std::make_unique<StripStage>(options);
}

std::unique_ptr<const DecoderStage> make_spaced_stage() { return std::make_unique<SpacedStage>(); }

}  // namespace temper::tokenizers
