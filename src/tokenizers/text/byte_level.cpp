#include "tokenizers/text/byte_level.h"

#include <array>

#include "base/utf8.h"

namespace temper::tokenizers {
namespace {

constexpr size_t kAlphabetEnd = 256 + 68;

constexpr bool stands_for_itself(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<char32_t, 256> characters{};
  std::array<int, kAlphabetEnd> bytes{};
};

constexpr Alphabet make_alphabet() {
  Alphabet alphabet;
  alphabet.bytes.fill(-1);
  char32_t next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const char32_t character = stands_for_itself(byte) ? static_cast<char32_t>(byte) : next++;
    alphabet.characters[static_cast<size_t>(byte)] = character;
    alphabet.bytes[character] = byte;
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = make_alphabet();

}  // namespace

char32_t spelling_of_byte(unsigned char byte) { return kAlphabet.characters[byte]; }

std::string spelling_of_bytes(std::string_view bytes) {
  std::string out;
  for (const char byte : bytes) append_utf8(out, spelling_of_byte(static_cast<unsigned char>(byte)));
  return out;
}

std::string bytes_of_spelling(std::string_view spelling) {
  std::string out;
  for (std::string_view rest = spelling; !rest.empty();) {
    const Utf8Step step = next_utf8(rest);
    if (step.value >= kAlphabetEnd || kAlphabet.bytes[step.value] < 0) return std::string(spelling);
    out += static_cast<char>(kAlphabet.bytes[step.value]);
    rest.remove_prefix(step.size);
  }
  return out;
}

}  // namespace temper::tokenizers
