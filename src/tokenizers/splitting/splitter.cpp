#include "tokenizers/splitting/splitter.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizers/splitting/split_kinds.h"
#include "tokenizers/text/byte_level.h"
#include "tokenizers/text/component.h"

namespace temper::tokenizers {
namespace {

// What ByteLevel splits by with use_regex (Radford et al., "Language Models are Unsupervised Multitask
// Learners", 2019).
constexpr std::string_view kByteLevelPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

constexpr std::array<std::pair<std::string_view, SplitBehavior>, 5> kBehaviors = {{
    {"Isolated", SplitBehavior::kIsolated},
    {"Removed", SplitBehavior::kRemoved},
    {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
    {"MergedWithNext", SplitBehavior::kMergedWithNext},
    {"Contiguous", SplitBehavior::kContiguous},
}};

}  // namespace

SplitBehavior behavior_of(const Json& component, std::string_view otherwise, const std::string& place) {
  const std::string name = string_option(component, "behavior", otherwise, place);
  for (const auto& [known, behavior] : kBehaviors)
    if (known == name) return behavior;
  fail("{}.behavior is '{}'; supported: Isolated, Removed, MergedWithPrevious, MergedWithNext, Contiguous",
       place, name);
}

Split split_of(const Json& component, const std::string& place) {
  const Json& pattern = required(component, "pattern", place);
  const SplitBehavior behavior = behavior_of(component, "", place);
  const bool invert = bool_option(component, "invert", false, place);
  const Json* regex = pattern.find("Regex");
  const Json* text = pattern.find("String");
  if (regex && regex->is_string()) {
    const bool isolated = behavior == SplitBehavior::kIsolated && !invert;
    if (const auto scanner = isolated ? known_scanner(regex->as_string()) : nullptr) return Split(scanner);
    return Split(Pattern::regex(regex->as_string(), place), behavior, invert);
  }
  if (text && text->is_string()) return Split(Pattern::literal(text->as_string(), place), behavior, invert);
  fail("{}.pattern must be {{\"Regex\": …}} or {{\"String\": …}}", place);
}

Split digits_of(const Json& component, const std::string& place) {
  const bool individual = bool_option(component, "individual_digits", false, place);
  return Split(digit_scanner(individual));
}

std::vector<Split::Part> Split::find_parts(std::string_view piece) const {
  std::vector<Part> parts;
  size_t done = 0;  // all before it lies in a part
  for (size_t from = 0; from <= piece.size();) {
    const auto match = pattern_->find(piece, from);
    if (!match) break;
    const bool empty = match->begin == match->end;
    if (!empty || match->begin != done || parts.empty()) {
      if (done < match->begin) parts.push_back({done, match->begin, invert_});
      parts.push_back({match->begin, match->end, !invert_});
      done = match->end;
    }
    from = match->end;
    if (empty && from == piece.size()) break;
    if (empty) from += next_utf8(piece.substr(from)).size;
  }
  if (done < piece.size()) parts.push_back({done, piece.size(), invert_});
  return parts;
}

void Split::run(std::string_view piece, std::vector<std::string_view>& out) const {
  std::vector<Part> parts = find_parts(piece), merged;
  const bool backwards = behavior_ == SplitBehavior::kMergedWithNext;
  if (backwards) std::reverse(parts.begin(), parts.end());
  bool previous = false;
  for (const Part& part : parts) {
    const bool joins =
        behavior_ == SplitBehavior::kContiguous
            ? part.match == previous
            : (backwards || behavior_ == SplitBehavior::kMergedWithPrevious) && part.match && !previous;
    if (joins && !merged.empty()) {
      merged.back().begin = std::min(merged.back().begin, part.begin);
      merged.back().end = std::max(merged.back().end, part.end);
    } else {
      merged.push_back(part);
    }
    previous = part.match;
  }
  if (backwards) std::reverse(merged.begin(), merged.end());
  for (const Part& part : merged) {
    const bool removed = behavior_ == SplitBehavior::kRemoved && part.match;
    if (!removed && part.begin < part.end) out.push_back(piece.substr(part.begin, part.end - part.begin));
  }
}

// A byte is a character in the spelling; characters of text may be cut.
std::vector<std::string_view> Splitter::split_spelled(std::string_view piece) const {
  const std::string spelled = spelling_of_bytes(piece);
  std::vector<std::string_view> parts{spelled}, next;
  for (const Split& split : later_splits_) {
    next.clear();
    for (const std::string_view part : parts)
      split.each(part, [&](std::string_view cut) { next.push_back(cut); });
    parts.swap(next);
  }
  size_t spelled_at = 0, at = 0;
  const auto advance = [&](size_t to) {
    for (; spelled_at < to; spelled_at += utf8_size(spelled[spelled_at])) ++at;
    return at;
  };
  for (std::string_view& part : parts) {
    const auto begin = static_cast<size_t>(part.data() - spelled.data());
    const size_t first = advance(begin), last = advance(begin + part.size());
    part = piece.substr(first, last - first);
  }
  return parts;
}

bool Splitter::cuts_at_words() const {
  if (add_prefix_space_ || !later_splits_.empty()) return false;
  bool words = byte_level_split_ && tokenizers::cuts_at_words(byte_level_split_->scanner());
  for (const Split& split : splits_) {
    if (!split.scanner()) return false;
    const bool at_words = tokenizers::cuts_at_words(split.scanner());
    if (!at_words && !cuts_at_runs(split.scanner())) return false;
    words |= at_words;
  }
  return words;
}

Splitter Splitter::from_json(const Json& json, std::string_view where) {
  Splitter splitter;
  bool byte_level = false;
  for_each_component(json, "pretokenizers", where, [&](const Json& component, const std::string& place) {
    const std::string& type = component_type(component, place);
    if (auto split = read_split(type, component, place)) {
      (byte_level ? splitter.later_splits_ : splitter.splits_).push_back(std::move(*split));
    } else if (type == "ByteLevel") {
      if (byte_level) fail("{}.type is 'ByteLevel', a second time; at most one is supported", place);
      byte_level = true;
      splitter.add_prefix_space_ = bool_option(component, "add_prefix_space", true, place);
      if (bool_option(component, "use_regex", true, place))
        splitter.byte_level_split_.emplace(known_scanner(kByteLevelPattern));
    } else {
      refuse_component(place, type,
                       "Split, Digits, Punctuation, Whitespace, WhitespaceSplit, ByteLevel, Sequence");
    }
  });
  if (!byte_level) fail("{} has no ByteLevel", where);
  return splitter;
}

}  // namespace temper::tokenizers
