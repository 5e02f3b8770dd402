#pragma once
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json/json.h"

namespace temper::tokenizers {

// One step from the spellings of tokens to text; it may hold back what later tokens decide.
class DecoderStage {
 public:
  struct State {
    std::string held;
    size_t count = 0;  // tokens, or characters, that were seen
  };
  using Emit = std::function<void(std::string_view)>;
  virtual ~DecoderStage() = default;
  virtual void push(std::string_view token, State& state, const Emit& emit) const = 0;
  virtual void finish(State&, const Emit&) const {}
  // What becomes of a token that is not the first, looked at alone; false when that is final.
  virtual bool map(std::string& token) const = 0;
};

// How far a decoding has come.
struct DecoderState {
  std::vector<DecoderStage::State> stages;
};

// Turns tokens into text, one by one; what `push` gives is never half a character.
class Decoder {
 public:
  static Decoder from_json(const Json& json, std::string_view where);
  bool byte_level() const { return byte_level_; }

  DecoderState start() const { return {std::vector<DecoderStage::State>(stages_.size())}; }
  void push(std::string_view spelling, DecoderState& state, std::string& out) const;
  void finish(DecoderState& state, std::string& out) const;

  std::string token_bytes(std::string_view spelling) const;  // what a token prints that is not the first

 private:
  void run(size_t stage, std::string_view token, DecoderState& state, std::string& out) const;
  std::vector<std::unique_ptr<const DecoderStage>> stages_;
  bool byte_level_ = false;
};

}  // namespace temper::tokenizers
