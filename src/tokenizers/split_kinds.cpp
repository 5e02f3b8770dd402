#include "tokenizers/split_kinds.h"

namespace temper::tokenizers {
namespace {

// Words and what is neither word nor space, as Rust's regular expressions have them.
constexpr std::string_view kWords =
    R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200C}\x{200D}]+|[^\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200C}\x{200D}\s]+)";

constexpr std::string_view kPunctuation = R"([\p{P}$+<=>\^`|~])";

}  // namespace

std::optional<Split> read_split(std::string_view type, const Json& component, const std::string& place) {
  if (type == "Split") return split_of(component, place);
  if (type == "Digits") return digits_of(component, place);
  if (type == "Punctuation")
    return Split(Pattern::regex(kPunctuation, place), behavior_of(component, "Isolated", place), false);
  if (type == "Whitespace") return Split(Pattern::regex(kWords, place), SplitBehavior::kRemoved, true);
  if (type == "WhitespaceSplit") return Split(Pattern::regex("\\s", place), SplitBehavior::kRemoved, false);
  return std::nullopt;
}

}  // namespace temper::tokenizers
