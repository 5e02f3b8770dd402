#include "tokenizers/text/replacement.h"

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizers/text/component.h"

namespace temper::tokenizers {

Replacement::Replacement(const Json& component, const std::string& place) {
  content_ = as_text(required(component, "content", place), place + ".content");
  const Json& pattern = required(component, "pattern", place);
  const Json* regex = pattern.find("Regex");
  const Json* text = pattern.find("String");
  if (regex && regex->is_string())
    pattern_ = Pattern::regex(regex->as_string(), place);
  else if (text && text->is_string())
    text_ = text->as_string();
  else
    fail("{}.pattern must be {{\"Regex\": …}} or {{\"String\": …}}", place);
  if (!pattern_ && text_.empty()) fail("{}.pattern must be a text of at least one character", place);
}

std::optional<ByteSpan> Replacement::find(std::string_view text, size_t from) const {
  if (pattern_) {
    const auto match = pattern_->find(text, from);
    return match ? std::optional<ByteSpan>({match->begin, match->end}) : std::nullopt;
  }
  const size_t begin = text.find(text_, from);
  if (begin == std::string_view::npos) return std::nullopt;
  return ByteSpan{begin, begin + text_.size()};
}

AlignedText Replacement::run(std::string_view text, bool aligned) const {
  TextRewriter out(text, aligned);
  size_t done = 0;
  for (size_t from = 0; from <= text.size() && !text.empty();) {
    const auto match = find(text, from);
    if (!match) break;
    const bool empty = match->begin == match->end;
    if (!empty || match->begin > done || done == 0) {  // not where another match has just ended
      out.keep(match->begin - done);
      out.replace(match->end - match->begin, content_);
      done = match->end;
    }
    from = match->end;
    if (empty) from += from < text.size() ? next_utf8(text.substr(from)).size : 1;
  }
  return out.finish();
}

}  // namespace temper::tokenizers
