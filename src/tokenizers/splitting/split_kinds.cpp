#include "tokenizers/splitting/split_kinds.h"

#include "base/error.h"
#include "tokenizers/unicode/characters.h"
#include "tokenizers/unicode/later_characters.h"

namespace temper::tokenizers {
namespace {

// Punctuation as the `tokenizers` library's tables have it: without what Unicode 8 and later added, with what
// is no punctuation any more. Later characters of P follow.
constexpr std::string_view kPunctuation =
    R"([[\p{P}$+<=>\^`|~\x{166D}\x{111C9}]&&[^)"
    R"(\x{61D}\x{9FD}\x{A76}\x{C77}\x{C84}\x{1B7D}-\x{1B7E}\x{2E43}-\x{2E4F}\x{2E52}-\x{2E5D}\x{10EAD})"
    R"(\x{10F55}-\x{10F59}\x{10F86}-\x{10F89}\x{1144B}-\x{1144F}\x{1145A}-\x{1145B}\x{1145D})"
    R"(\x{11660}-\x{1166C}\x{116B9}\x{1183B}\x{11944}-\x{11946}\x{119E2}\x{11A3F}-\x{11A46})"
    R"(\x{11A9A}-\x{11A9C}\x{11A9E}-\x{11AA2}\x{11C41}-\x{11C45}\x{11C70}-\x{11C71}\x{11EF7}-\x{11EF8})"
    R"(\x{11FFF}\x{12FF1}-\x{12FF2}\x{16E97}-\x{16E9A}\x{16FE2}\x{1E95E}-\x{1E95F})";

}  // namespace

std::optional<Split> read_split(std::string_view type, const Json& component, const std::string& place) {
  if (type == "Split") return split_of(component, place);
  if (type == "Digits") return digits_of(component, place);
  if (type == "Punctuation")
    return Split(Pattern::regex(fmt::format("{}{}]]", kPunctuation, later_characters("P")), place),
                 behavior_of(component, "Isolated", place), false);
  if (type == "Whitespace") {
    const std::string words = fmt::format("[{0}]+|[^{0}\\s]+", word_items());
    return Split(Pattern::regex(words, place), SplitBehavior::kRemoved, true);
  }
  if (type == "WhitespaceSplit") return Split(Pattern::regex("\\s", place), SplitBehavior::kRemoved, false);
  return std::nullopt;
}

}  // namespace temper::tokenizers
