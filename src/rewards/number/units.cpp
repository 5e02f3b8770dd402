#include "rewards/number/units.h"

#include <algorithm>
#include <array>
#include <string>

#include "rewards/number/scan_number.h"

namespace temper::rewards {
namespace {

// Words that change the number before them, or that more of it follows.
constexpr std::array<std::string_view, 58> kNoUnits{
    "pi",       "tau",       "sqrt",     "root",      "sin",     "cos",      "tan",     "log",
    "ln",       "exp",       "mod",      "and",       "or",      "to",       "plus",    "minus",
    "times",    "over",      "by",       "of",        "half",    "halves",   "third",   "thirds",
    "quarter",  "quarters",  "fourth",   "fourths",   "fifth",   "fifths",   "sixth",   "sixths",
    "seventh",  "sevenths",  "eighth",   "eighths",   "ninth",   "ninths",   "tenth",   "tenths",
    "hundred",  "hundreds",  "thousand", "thousands", "million", "millions", "billion", "billions",
    "trillion", "trillions", "dozen",    "dozens",    "squared", "cubed",    "point",   "percent",
    "infinity", "remainder"};

bool changes_numbers(std::string word) {
  std::transform(word.begin(), word.end(), word.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return std::find(kNoUnits.begin(), kNoUnits.end(), word) != kNoUnits.end();
}

bool is_part_of_word(char c) { return is_letter(c) || static_cast<unsigned char>(c) >= 0x80; }

// Letters of any script, and what stands between those of a unit: km/h, in-lbs.
bool are_units(std::string_view words) {
  std::string word;
  for (const char c : std::string(words) + " ") {
    if (is_part_of_word(c)) {
      word += c;
      continue;
    }
    if (c != ' ' && c != '/' && c != '-' && c != '.') return false;
    if (changes_numbers(word)) return false;
    word.clear();
  }
  return true;
}

bool take(std::string_view& text, std::string_view part) {
  if (!text.starts_with(part)) return false;
  text.remove_prefix(part.size());
  return true;
}

void take_spaces(std::string_view& text) {
  while (take(text, " ") || take(text, "\n")) {
  }
}

// ^2, ^{-1}, ², ³
void take_exponent(std::string_view& text) {
  if (take(text, "²") || take(text, "³")) return;
  std::string_view rest = text;
  if (!take(rest, "^")) return;
  const bool braced = take(rest, "{");
  take(rest, "-");
  if (rest.empty() || !is_digit(rest.front())) return;
  rest.remove_prefix(1);
  if (braced && !take(rest, "}")) return;
  text = rest;
}

bool take_command(std::string_view& text) {
  constexpr std::array<std::string_view, 5> kCommands{"\\text{", "\\textrm{", "\\mathrm{", "\\mbox{",
                                                      "\\rm{"};
  for (const std::string_view command : kCommands) {
    std::string_view rest = text;
    if (!take(rest, command)) continue;
    const size_t end = rest.find('}');
    if (end == std::string_view::npos || !are_units(rest.substr(0, end))) return false;
    text = rest.substr(end + 1);
    return true;
  }
  return false;
}

// Words behind a space. A single letter may be a variable.
bool take_words(std::string_view& text) {
  size_t end = 0;
  while (end < text.size() && (is_part_of_word(text[end]) || text[end] == ' ' || text[end] == '/')) ++end;
  const std::string_view words = text.substr(0, end);
  if (words.size() < 2 || !is_part_of_word(words[0]) || !is_part_of_word(words[1])) return false;
  // ² and ³ are no letters.
  const size_t exponent = std::min(words.find("²"), words.find("³"));
  const std::string_view taken = words.substr(0, exponent);
  if (!are_units(taken)) return false;
  text.remove_prefix(taken.size());
  return true;
}

bool take_degrees(std::string_view& text) {
  return take(text, "°") || take(text, "^\\circ") || take(text, "^{\\circ}") || take(text, "\\degree") ||
         take(text, "^{\\degree}");
}

}  // namespace

bool is_unit(std::string_view text) {
  const bool behind_space = text.starts_with(' ') || text.starts_with('\n');
  take_spaces(text);
  if (take(text, "\\$") || take(text, "$") || take(text, "€") || take(text, "£") || take_degrees(text)) {
    take_spaces(text);
    return text.empty() || text == "C" || text == "F";
  }
  bool first = true;
  while (!text.empty()) {
    if (!take_command(text) && !((behind_space || !first) && take_words(text))) return false;
    take_exponent(text);
    take_spaces(text);
    first = false;
  }
  return true;
}

}  // namespace temper::rewards
