#include <algorithm>
#include <cctype>
#include <utility>
#include <vector>

#include "base/error.h"
#include "tokenizers/text/pattern.h"
#include "tokenizers/unicode/later_characters.h"

namespace temper::tokenizers {
namespace {

// Word characters; outside classes \w has the Latin-1 superscripts and fractions, too.
constexpr std::string_view kClassWord = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";
constexpr std::string_view kWord = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\xB2\\xB3\\xB9\\xBC-\\xBE";

// Oniguruma's names for sets of characters, as items of a PCRE2 class.
constexpr std::pair<std::string_view, std::string_view> kNamedSets[] = {
    {"alpha", "\\p{Alphabetic}"},
    {"digit", "\\p{Nd}"},
    {"upper", "\\p{Uppercase}"},
    {"lower", "\\p{Lowercase}"},
    {"space", "\\p{White_Space}"},
    {"punct", "\\p{P}"},
    {"alnum", "\\p{Alphabetic}\\p{Nd}"},
    {"cntrl", "\\p{Cc}"},
    {"xdigit", "0-9A-Fa-f"},
    {"blank", "\\p{Zs}\\t"},
    {"word", kClassWord},
    {"letter", "\\p{L}"},
    {"mark", "\\p{M}"},
    {"number", "\\p{N}"},
    {"punctuation", "\\p{P}"},
    {"symbol", "\\p{S}"},
    {"separator", "\\p{Z}"},
    {"any", "\\p{Any}"},
    {"alphabetic", "\\p{Alphabetic}"},
    {"uppercase", "\\p{Uppercase}"},
    {"lowercase", "\\p{Lowercase}"},
    {"whitespace", "\\p{White_Space}"},
    {"ideographic", "\\p{Ideographic}"},
    {"emoji", "\\p{Emoji}"},
    {"ascii", "\\x00-\\x7F"},
    {"extendedpictographic", "\\p{Extended_Pictographic}"}};

// The items for a property or POSIX name; "" when the name is none of ours.
std::string_view named_set(std::string_view name) {
  std::string plain;
  for (const char c : name)
    if (std::isalnum(static_cast<unsigned char>(c))) plain += static_cast<char>(std::tolower(c));
  for (const auto& [known, items] : kNamedSets)
    if (known == plain) return items;
  return "";
}

// The items with the characters of their properties that PCRE2's tables may not have yet.
std::string with_later(std::string_view items) {
  std::string out(items);
  for (size_t at = items.find("\\p{"); at != std::string_view::npos; at = items.find("\\p{", at + 1))
    out += later_characters(items.substr(at + 3, items.find('}', at) - at - 3));
  return out;
}

// Characters, some of them as items of one PCRE2 class and some as expressions that match one character each.
struct Union {
  std::string items;
  std::vector<std::string> nested;

  std::string expression() const {
    if (nested.empty()) return fmt::format("[{}]", items);
    if (items.empty() && nested.size() == 1) return nested[0];
    std::string out = items.empty() ? "(?:" : fmt::format("(?:[{}]|", items);
    for (size_t i = 0; i < nested.size(); ++i) out += (i ? "|" : "") + nested[i];
    return out + ")";
  }
};

class Rewriter {
 public:
  Rewriter(std::string_view pattern, std::string_view where) : pattern_(pattern), where_(where) {}

  std::string run() {
    while (at_ < pattern_.size()) step();
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(std::string_view what) const {
    fail("{}: pattern '{}': {} (at byte {})", where_, pattern_, what, at_);
  }
  bool starts(std::string_view prefix) const { return pattern_.substr(at_).starts_with(prefix); }
  std::string_view take(size_t count) {
    const std::string_view taken = pattern_.substr(at_, count);
    at_ += taken.size();
    return taken;
  }
  void atom(std::string_view text) {
    atom_ = out_.size();
    out_ += text;
  }

  void step() {
    const char c = pattern_[at_];
    if (c == '\\') return escape();
    if (c == '[') return atom(character_class());
    if (c == '(') return open_group();
    if (c == '{' && interval()) return;
    if (c == ')' && !groups_.empty()) {
      atom_ = groups_.back();
      groups_.pop_back();
      out_ += take(1);
      return;
    }
    const bool quantifier = c == '*' || c == '+' || c == '?';
    const bool continuation = (static_cast<unsigned char>(c) & 0xC0) == 0x80;
    if (quantifier || continuation)
      out_ += take(1);
    else
      atom(take(1));
  }

  // In groups Oniguruma's option m is what PCRE2 calls s.
  void open_group() {
    groups_.push_back(out_.size());
    if (starts("(?~")) refuse("absent operators are not supported");
    out_ += take(1);
    if (!starts("?") || starts("?<") || starts("?#")) return;
    const size_t end = pattern_.find_first_not_of("imx-", at_ + 1);
    const bool options =
        end != std::string_view::npos && end > at_ + 1 && (pattern_[end] == ':' || pattern_[end] == ')');
    if (!options) return;
    std::string text(take(end - at_));
    std::replace(text.begin(), text.end(), 'm', 's');
    out_ += text;
  }

  // {n,m}+ repeats the repetition and {n}? makes it optional; in PCRE2 they mean something else.
  bool interval() {
    const size_t end = pattern_.find_first_not_of("0123456789,", at_ + 1);
    if (end == std::string_view::npos || pattern_[end] != '}' || end == at_ + 1) return false;
    std::string text(take(end + 1 - at_));
    if (text == "{,}") refuse("the interval {,} is not supported");
    if (text[1] == ',') text = fmt::format("{{0{}", text.substr(1));
    out_ += text;
    const bool exact = text.find(',') == std::string::npos;
    if (starts("+") || (exact && starts("?"))) {
      out_.insert(atom_, "(?:");
      out_ += ")";
      out_ += take(1);
    }
    return true;
  }

  void escape() {
    const std::string word = fmt::format("[{}]", with_later(kWord));
    if (starts("\\b")) {
      atom(fmt::format("(?:(?<={0})(?!{0})|(?<!{0})(?={0}))", word));
    } else if (starts("\\B")) {
      atom(fmt::format("(?:(?<={0})(?={0})|(?<!{0})(?!{0}))", word));
    } else {
      Union set;
      const size_t before = at_;
      if (class_escape(set, kWord)) return atom(set.expression());
      at_ = before;
      atom(take(2));
      return;
    }
    at_ += 2;
  }

  static std::string negated(std::string_view items) { return fmt::format("[^{}]", items); }
  static void add(Union& set, std::string_view items, bool negative) {
    if (negative)
      set.nested.push_back(negated(with_later(items)));
    else
      set.items += with_later(items);
  }

  // Adds an escape that means a set of characters or that PCRE2 spells otherwise; false for all others.
  bool class_escape(Union& set, std::string_view word) {
    if (at_ + 1 >= pattern_.size()) refuse("ends in a backslash");
    const char kind = pattern_[at_ + 1];
    std::string_view items;
    if (kind == 's' || kind == 'S')
      items = "\\p{White_Space}";
    else if (kind == 'w' || kind == 'W')
      items = word;
    else if (kind == 'h' || kind == 'H')
      items = "0-9A-Fa-f";
    else if (kind == 'u')
      return unicode_escape(set);
    else if (kind == 'p' || kind == 'P')
      return property(set);
    else
      return false;
    at_ += 2;
    add(set, items, std::isupper(static_cast<unsigned char>(kind)) != 0);
    return true;
  }

  bool unicode_escape(Union& set) {
    const std::string_view digits = pattern_.substr(at_ + 2, 4);
    if (digits.size() < 4) refuse("\\u needs four hexadecimal digits");
    at_ += 6;
    set.items += fmt::format("\\x{{{}}}", digits);
    return true;
  }

  // PCRE2's \p{Han} is about script extensions, Oniguruma's about scripts.
  bool property(Union& set) {
    const size_t end = pattern_.find('}', at_);
    if (pattern_.substr(at_ + 2, 1) != "{" || end == std::string_view::npos)
      refuse("\\p needs a name in braces");
    bool negative = pattern_[at_ + 1] == 'P';
    std::string_view name = pattern_.substr(at_ + 3, end - at_ - 3);
    if (name.starts_with('^')) {
      negative = !negative;
      name.remove_prefix(1);
    }
    at_ = end + 1;
    const std::string_view items = named_set(name);
    if (!items.empty())
      add(set, items, negative);
    else if (name == "C" || name == "Cn")
      unassigned(set, name, negative);
    else
      add(set, fmt::format("\\p{{{}{}}}", name.size() > 2 ? "sc:" : "", name), negative);
    return true;
  }

  // What PCRE2 may not know is not assigned to it.
  static void unassigned(Union& set, std::string_view name, bool negative) {
    std::string all = fmt::format("(?:(?![{}])\\p{{{}}}", later_assigned(), name);
    all += name == "C" ? fmt::format("|[{}])", later_characters("Cf")) : ")";
    set.nested.push_back(negative ? fmt::format("(?:(?!{})(?s:.))", all) : all);
  }

  bool posix_set(Union& set) {
    const size_t end = pattern_.find(":]", at_ + 2);
    if (!starts("[:") || end == std::string_view::npos) return false;
    std::string_view name = pattern_.substr(at_ + 2, end - at_ - 2);
    const bool negative = name.starts_with('^');
    if (negative) name.remove_prefix(1);
    if (name.find_first_not_of("abcdefghijklmnopqrstuvwxyz") != std::string_view::npos) return false;
    const std::string_view items = name == "punct" ? "\\p{P}\\p{S}" : named_set(name);  // unlike \p{Punct}
    if (items.empty()) refuse(fmt::format("the set [:{}:] is not supported", name));
    at_ = end + 2;
    add(set, items, negative);
    return true;
  }

  // From "[" to the matching "]", as an expression that matches one character.
  std::string character_class() {
    if (++depth_ > 32) refuse("classes are nested too deeply");
    take(1);
    const bool negative = starts("^");
    if (negative) take(1);
    std::vector<Union> operands(1);
    if (starts("]")) operands.back().items += fmt::format("\\{}", take(1));
    while (!starts("]")) {
      if (at_ >= pattern_.size()) refuse("a class is not closed");
      Union& set = operands.back();
      if (starts("&&")) {
        take(2);
        operands.emplace_back();
      } else if (starts("[")) {
        if (!posix_set(set)) set.nested.push_back(character_class());
      } else if (!starts("\\")) {
        set.items += take(1);
      } else if (!class_escape(set, kClassWord)) {
        set.items += take(2);
      }
    }
    take(1);
    --depth_;
    return class_expression(operands, negative);
  }

  std::string class_expression(const std::vector<Union>& operands, bool negative) const {
    if (operands.size() == 1 && operands[0].nested.empty() && negative) return negated(operands[0].items);
    std::string all;
    for (size_t i = 0; i + 1 < operands.size(); ++i) all += fmt::format("(?={})", operands[i].expression());
    all += operands.back().expression();
    if (negative) return fmt::format("(?:(?!{})(?s:.))", all);
    return operands.size() == 1 ? all : fmt::format("(?:{})", all);
  }

  std::string_view pattern_, where_;
  std::string out_;
  size_t at_ = 0;
  size_t atom_ = 0;             // where in out_ the last atom starts
  std::vector<size_t> groups_;  // where in out_ the open groups start
  int depth_ = 0;
};

}  // namespace

std::string rewrite_pattern(std::string_view pattern, std::string_view where) {
  return Rewriter(pattern, where).run();
}

}  // namespace temper::tokenizers
