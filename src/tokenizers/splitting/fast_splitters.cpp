#include "tokenizers/splitting/fast_splitters.h"

#include <algorithm>
#include <climits>
#include <iterator>
#include <string>

#include "base/utf8.h"

namespace temper::tokenizers {
namespace {

struct Character {
  unsigned classes = 0;
  size_t size = 0;  // 0 behind the end
  bool is(unsigned wanted) const { return (classes & wanted) != 0; }
};

// A text and the classes of its characters.
class Scan {
 public:
  Scan(const CodePointTable& classes, std::string_view text) : classes_(classes), text_(text) {}
  size_t size() const { return text_.size(); }
  unsigned char byte(size_t at) const { return at < size() ? static_cast<unsigned char>(text_[at]) : 0; }
  Character at(size_t at) const {
    if (at >= size()) return {};
    const Utf8Step step = valid_utf8(text_.data() + at);
    return {classes_[step.value], step.size};
  }
  // Where the characters of these classes, or of none of these, end.
  size_t run(unsigned classes, size_t at) const {
    return end_of(at, [=](Character c) { return c.is(classes); });
  }
  size_t run_without(unsigned classes, size_t at) const {
    return end_of(at, [=](Character c) { return !c.is(classes); });
  }
  size_t newlines(size_t at) const {
    while (byte(at) == '\r' || byte(at) == '\n') ++at;
    return at;
  }

 private:
  template <class Belongs>
  size_t end_of(size_t from, Belongs belongs) const {
    for (Character c = at(from); c.size > 0 && belongs(c); c = at(from)) from += c.size;
    return from;
  }
  const CodePointTable& classes_;
  std::string_view text_;
};

// 's 't 're 've 'm 'll 'd; without regard to case s is ſ, too. The size of the contraction at `at`, or 0.
template <bool kAnyCase>
size_t contraction(const Scan& scan, size_t at) {
  if (scan.byte(at) != '\'') return 0;
  const auto letter = [&](size_t i) {
    const unsigned char byte = scan.byte(i);
    return kAnyCase && byte >= 'A' && byte <= 'Z' ? byte + ('a' - 'A') : byte;
  };
  const auto first = letter(at + 1), second = letter(at + 2);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  if ((first == 'r' || first == 'v') && second == 'e') return 3;
  if (first == 'l' && second == 'l') return 3;
  if (kAnyCase && first == 0xC5 && second == 0xBF) return 3;
  return 0;
}

// \s*[\r\n]+|\s+(?!\S)|\s+ where white space begins; the first of them only with kLines.
template <bool kLines>
size_t white_space(const Scan& scan) {
  size_t at = 0, last = 0, line_end = 0;
  for (Character c = scan.at(0); c.is(kSpace); c = scan.at(at)) {
    last = at;
    at += c.size;
    if (c.is(kNewline)) line_end = at;
  }
  if (kLines && line_end > 0) return line_end;
  return at < scan.size() && last > 0 ? last : at;
}

size_t numbers(const Scan& scan, size_t at, int most) {
  for (Character c = scan.at(at); most > 0 && c.is(kNumber); c = scan.at(at), --most) at += c.size;
  return at;
}

// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
size_t gpt2(const CodePointTable& classes, std::string_view text) {
  const Scan scan(classes, text);
  if (const size_t size = contraction<false>(scan, 0)) return size;
  const size_t start = scan.byte(0) == ' ' ? 1 : 0;
  const Character c = scan.at(start);
  if (c.is(kLetter)) return scan.run(kLetter, start + c.size);
  if (c.is(kNumber)) return scan.run(kNumber, start + c.size);
  if (c.size > 0 && !c.is(kSpace)) return scan.run_without(kSpace | kLetter | kNumber, start + c.size);
  return white_space<false>(scan);
}

// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|
// \s+(?!\S)|\s+ with other words than \p{L}+ and other numbers.
template <int kWord, int kNumbers>
size_t cl100k(const CodePointTable& classes, std::string_view text) {
  const Scan scan(classes, text);
  const Character first = scan.at(0);
  if (first.is(kWord)) return scan.run(kWord, first.size);
  if (const size_t size = contraction<true>(scan, 0)) return size;
  if (first.is(kNumber)) return numbers(scan, first.size, kNumbers - 1);
  const Character second = scan.at(first.size);
  if (!first.is(kNewline) && second.is(kWord)) return scan.run(kWord, first.size + second.size);
  if (!first.is(kSpace)) return scan.newlines(scan.run_without(kSpace | kWord | kNumber, first.size));
  if (scan.byte(0) == ' ' && second.size > 0 && !second.is(kSpace | kNumber))
    return scan.newlines(scan.run_without(kSpace | kWord | kNumber, 1 + second.size));
  return white_space<true>(scan);
}

// [kHead]*[kTail]+, else [kHead]+[kTail]*, each with a contraction if there is one; `at` without a match. The
// classes share kCaseless and kMark, so what kHead took may have to be given back to kTail.
size_t cased_word(const Scan& scan, size_t at) {
  constexpr int kHead = kUpper | kCaseless | kMark, kTail = kLower | kCaseless | kMark;
  size_t end = at, shared = at;
  Character c = scan.at(end);
  for (; c.is(kHead); c = scan.at(end)) {
    end += c.size;
    if (c.is(kTail)) shared = end;
  }
  if (c.is(kTail))
    end = scan.run(kTail, end + c.size);
  else if (shared > at)
    end = shared;
  return end > at ? end + contraction<true>(scan, end) : at;
}

// [^\r\n\p{L}\p{N}]?WORD|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+ where WORD is
// cased_word.
template <bool kSlashes>
size_t o200k(const CodePointTable& classes, std::string_view text) {
  const Scan scan(classes, text);
  const Character first = scan.at(0);
  if (first.is(kNumber)) return numbers(scan, first.size, 2);
  if (first.is(kLetter | kMark)) return cased_word(scan, 0);
  if (!first.is(kNewline))
    if (const size_t end = cased_word(scan, first.size); end > first.size) return end;
  const Character second = scan.at(first.size);
  const bool after_space = scan.byte(0) == ' ' && second.size > 0 && !second.is(kSpace | kNumber);
  if (first.is(kSpace) && !after_space) return white_space<true>(scan);
  size_t end = scan.run_without(kSpace | kLetter | kNumber, first.size + (after_space ? second.size : 0));
  while (scan.byte(end) == '\r' || scan.byte(end) == '\n' || (kSlashes && scan.byte(end) == '/')) ++end;
  return end;
}

constexpr bool is_ascii_letter(unsigned char byte) { return (byte | 0x20) >= 'a' && (byte | 0x20) <= 'z'; }

// [!-/:-~ without letters][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|
// ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)| \s+, which leaves out numbers and characters without a class.
size_t deepseek(const CodePointTable& classes, std::string_view text) {
  constexpr unsigned kWord = kLetter | kMark;
  const Scan scan(classes, text);
  const Character first = scan.at(0), second = scan.at(first.size);
  if (first.is(kWord)) return scan.run(kWord, first.size);
  if (first.is(kSymbol)) {
    size_t end = first.size;
    if (end > 1 || !is_ascii_letter(scan.byte(end))) return scan.newlines(scan.run(kSymbol, end));
    while (is_ascii_letter(scan.byte(end))) ++end;
    return end;
  }
  if (!first.is(kNewline) && second.is(kWord)) return scan.run(kWord, first.size + second.size);
  if (scan.byte(0) == ' ' && second.is(kSymbol)) return scan.newlines(scan.run(kSymbol, 1 + second.size));
  if (first.is(kSpace)) return white_space<true>(scan);
  // The last of a run that no alternative takes leads the word behind it.
  size_t at = 0, last = 0;
  Character c = first;
  for (; c.size > 0 && !c.is(kWord | kSymbol | kSpace); c = scan.at(at)) {
    last = at;
    at += c.size;
  }
  return c.is(kWord) ? last : at;
}

// Runs of characters that belong, each at most `most` long, and what is between them.
template <class Belongs>
size_t runs(const Scan& scan, int most, Belongs belongs) {
  size_t at = 0;
  const bool inside = belongs(0);
  for (int count = 0; at < scan.size() && belongs(at) == inside && (!inside || count < most); ++count)
    at += scan.at(at).size;
  return at;
}

template <int kMost>
size_t number_runs(const CodePointTable& classes, std::string_view text) {
  const Scan scan(classes, text);
  return runs(scan, kMost, [&](size_t at) { return scan.at(at).is(kNumber); });
}

// \p{N} of Unicode 17: numbers are what Rust's standard library says, whose tables are later than those of
// patterns.
template <int kMost>
size_t digit_runs(const CodePointTable& classes, std::string_view text) {
  const Scan scan(classes, text);
  return runs(scan, kMost, [&](size_t at) {
    const char32_t c = valid_utf8(text.data() + at).value;
    return scan.at(at).is(kNumber) || (c >= 0x11DE0 && c <= 0x11DE9) || (c >= 0x16FF4 && c <= 0x16FF6);
  });
}

// [一-龥぀-ゟ゠-ヿ]+
size_t cjk_runs(const CodePointTable& classes, std::string_view text) {
  const Scan scan(classes, text);
  return runs(scan, INT_MAX, [&](size_t at) {
    const char32_t c = valid_utf8(text.data() + at).value;
    return (c >= 0x4E00 && c <= 0x9FA5) || (c >= 0x3040 && c <= 0x30FF);
  });
}

constexpr int kWithMarks = kLetter | kMark;

struct Known {
  std::string_view pattern;
  PieceScanner scanner;
};
constexpr Known kKnown[] = {
    // GPT-2, and ByteLevel with use_regex
    {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", gpt2},
    {R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", gpt2},
    // Llama 3
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
     R"(|\s*[\r\n]+|\s+(?!\S)|\s+)",
     cl100k<kLetter, 3>},
    // GPT-4
    {R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*)"
     R"(|\s*[\r\n]|\s+(?!\S)|\s+)",
     cl100k<kLetter, 3>},
    // Qwen2, Qwen2.5, Qwen3
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
     R"(|\s*[\r\n]+|\s+(?!\S)|\s+)",
     cl100k<kLetter, 1>},
    // Qwen3.5
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*)"
     R"(|\s*[\r\n]+|\s+(?!\S)|\s+)",
     cl100k<kWithMarks, 1>},
    // GPT-4o, Llama 4
    {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
     R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     o200k<true>},
    // MiniMax
    {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
     R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     o200k<false>},
    // DeepSeek-V3, in this order
    {R"(\p{N}{1,3})", number_runs<3>},
    {R"([一-龥぀-ゟ゠-ヿ]+)", cjk_runs},
    {R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
     R"(| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     deepseek}};

}  // namespace

PieceScanner known_scanner(std::string_view regex) {
  std::string spelled;  // some files have the line ends themselves where others have \r\n
  for (const char c : regex) {
    if (c == '\r' || c == '\n')
      spelled += c == '\r' ? "\\r" : "\\n";
    else
      spelled += c;
  }
  for (const Known& known : kKnown)
    if (known.pattern == spelled) return known.scanner;
  return nullptr;
}

bool cuts_at_runs(PieceScanner scanner) {
  for (const PieceScanner each : {PieceScanner{number_runs<3>}, PieceScanner{cjk_runs},
                                  PieceScanner{digit_runs<1>}, PieceScanner{digit_runs<INT_MAX>}})
    if (scanner == each) return true;
  return false;
}

bool cuts_at_words(PieceScanner scanner) {
  return !cuts_at_runs(scanner) && std::any_of(std::begin(kKnown), std::end(kKnown),
                                               [&](const Known& known) { return known.scanner == scanner; });
}

std::vector<std::string_view> known_patterns() {
  std::vector<std::string_view> patterns;
  for (const Known& known : kKnown) patterns.push_back(known.pattern);
  return patterns;
}

PieceScanner digit_scanner(bool individual) { return individual ? digit_runs<1> : digit_runs<INT_MAX>; }

}  // namespace temper::tokenizers
