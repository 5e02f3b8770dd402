#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json/json.h"
#include "tokenizers/text/byte_span.h"

namespace temper::tokenizers {

class Decoder;
struct DecoderState;
struct TokenFiles;

struct Encoding {
  std::vector<int32_t> ids;
  std::vector<ByteSpan> spans;  // one for each id: its bytes in the text
  size_t num_dropped = 0;  // bytes of the text for which the vocabulary has no token, and which became none
};

// A tokenizer as a Hugging Face tokenizer.json describes it; gives the ids that the `tokenizers` library
// gives. What is not supported (README.md) is refused when loading, by an Error that
// names the file, the component and the alternatives. Truncation and padding in the file are ignored.
// All const functions may be called from several threads at once.
class Tokenizer {
 public:
  // Of a folder, tokenizer.json with the tokens that its other files declare (tokens/declared_tokens.h);
  // those without an id get one below `vocab_size`, the model's. Where tokenizer_config.json says what goes
  // around texts, that as well.
  static Tokenizer load(const std::string& folder_or_file, int64_t vocab_size = 0);
  static Tokenizer from_json(std::string_view text, std::string_view where);
  static Tokenizer from_parsed(const Json& file, std::string_view where);
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Added tokens are recognized inside the text. With add_special_tokens the file's post-processor adds its
  // own (usually the begin-of-text token). Bytes that are not UTF-8 count as U+FFFD.
  std::vector<int32_t> encode(std::string_view text, bool add_special_tokens = false) const;

  // The same ids, with the bytes of `text` that each came from. A token may cover part of a character. Where
  // normalization changed characters, a token that touches them covers the whole group (a character and its
  // marks). A token of an added space or of the post-processor covers nothing. Text that is not UTF-8 is an
  // Error.
  Encoding encode_with_offsets(std::string_view text, bool add_special_tokens = false) const;

  // The same for a text that is cut into parts, none of whose tokens spans two: up to the first of `cuts`
  // (ascending bytes of the text) the ids of that part alone, then those of the others, each of which
  // continues what stands before it: nothing is put in front of it, as models write answers behind prompts.
  Encoding encode_parts(std::string_view text, std::span<const size_t> cuts,
                        bool add_special_tokens = false) const;

  // Of a text that an answer follows: of the post-processor's tokens those alone that stand before texts.
  Encoding encode_prompt(std::string_view text) const;

  // Bytes that do not join to UTF-8 come out as U+FFFD; ids without a token (padding of the vocabulary) as
  // nothing.
  std::string decode(std::span<const int32_t> ids, bool skip_special_tokens = false) const;

  std::optional<int32_t> token_id(std::string_view spelling) const;  // as spelled in the file: "Ġthe"
  std::string_view token_bytes(int32_t id) const;  // printed behind other tokens; may be part of UTF-8
  std::string token_text(int32_t id) const;  // for people: control characters and broken UTF-8 as \n, \xE2
  int32_t vocab_size() const;                // largest id + 1
  bool is_special(int32_t id) const;
  // Whether is_word_border divides texts, where one token ends and another begins, as special tokens do: the
  // tokens of any beginning of a text that reaches two bytes behind it are those of both parts alone.
  bool splits_at_words() const;

 private:
  friend class StreamDecoder;
  struct State;
  static std::unique_ptr<State> read(const Json& file, const std::string& where, const TokenFiles* files,
                                     int64_t vocab_size);
  const Decoder& decoder() const;
  std::string_view spelling(int32_t id) const;  // "" for an id without a token
  Encoding traced(std::string_view text, std::span<const size_t> cuts, std::span<const int32_t> before,
                  std::span<const int32_t> after) const;
  explicit Tokenizer(std::unique_ptr<const State> state);
  std::unique_ptr<const State> state_;
};

// Between an ASCII letter and a space that an ASCII letter follows, or between a line end and a printable
// ASCII character but '/'.
bool is_word_border(std::string_view text, size_t at);

// Prints ids as they arrive, one by one: in all what decode gives, and never half a character. The tokenizer
// must outlive it.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens = true);
  StreamDecoder(StreamDecoder&&) noexcept;
  StreamDecoder& operator=(StreamDecoder&&) noexcept;
  ~StreamDecoder();

  std::string push(int32_t id);  // the text that became printable
  std::string finish();          // what was held back; what is not UTF-8 as U+FFFD
  const std::string& text() const { return text_; }

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_tokens_;
  std::unique_ptr<DecoderState> state_;
  std::string text_;
};

}  // namespace temper::tokenizers
