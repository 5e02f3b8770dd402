#include "tokenizers/splitting/metaspace.h"

#include <array>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizers/text/component.h"

namespace temper::tokenizers {
namespace {

constexpr std::array<std::pair<std::string_view, PrependScheme>, 3> kSchemes = {{
    {"always", PrependScheme::kAlways},
    {"first", PrependScheme::kFirst},
    {"never", PrependScheme::kNever},
}};

PrependScheme scheme_of(const Json& component, const std::string& place) {
  const std::string name = string_option(component, "prepend_scheme", "always", place);
  for (const auto& [known, scheme] : kSchemes)
    if (known == name) {
      // What early versions wrote instead.
      if (!bool_option(component, "add_prefix_space", true, place) && scheme != PrependScheme::kNever)
        fail("{}.add_prefix_space is false, which needs the prepend_scheme 'never'", place);
      return scheme;
    }
  fail("{}.prepend_scheme is '{}'; supported: always, first, never", place, name);
}

}  // namespace

MetaspaceOptions MetaspaceOptions::from_json(const Json& component, const std::string& place) {
  MetaspaceOptions options;
  options.replacement = as_text(required(component, "replacement", place), place + ".replacement");
  if (options.replacement.empty() || next_utf8(options.replacement).size != options.replacement.size())
    fail("{}.replacement must be one character, found '{}'", place, options.replacement);
  options.prepend = scheme_of(component, place);
  options.split = bool_option(component, "split", true, place);
  return options;
}

bool Metaspace::prepends(const Pieces& pieces, ByteSpan span) const {
  if (pieces.is_continued(span)) return false;
  return options_.prepend == PrependScheme::kAlways ||
         (options_.prepend == PrependScheme::kFirst && pieces.is_first(span));
}

void Metaspace::rewrite(std::string_view piece, bool prepends, TextRewriter& out) const {
  if (prepends && !piece.starts_with(options_.replacement) && !piece.starts_with(' '))
    out.replace(0, options_.replacement);
  for (size_t at = 0; at < piece.size();) {
    const size_t space = std::min(piece.find(' ', at), piece.size());
    out.keep(space - at);
    if (space < piece.size()) out.replace(1, options_.replacement);
    at = space + 1;
  }
}

void Metaspace::cut(const std::string& text, ByteSpan span, std::vector<ByteSpan>& out) const {
  while (options_.split) {
    const size_t next = text.find(options_.replacement, span.begin + 1);
    if (next >= span.end) break;
    out.push_back({span.begin, next});
    span.begin = next;
  }
  out.push_back(span);
}

void Metaspace::run(Pieces& pieces, bool aligned) const {
  TextRewriter out(pieces.text, aligned);
  std::vector<ByteSpan> rewritten;
  size_t done = 0;
  for (const ByteSpan span : pieces.spans) {
    out.replace(span.begin - done, "");
    done = span.end;
    const size_t begin = out.size();
    rewrite(pieces.at(span), prepends(pieces, span), out);
    rewritten.push_back({begin, out.size()});
  }
  out.replace(pieces.text.size() - done, "");
  AlignedText result = out.finish();
  pieces.spans.clear();
  for (const ByteSpan span : rewritten) cut(result.text, span, pieces.spans);
  pieces.text = std::move(result.text);
  pieces.alignments.add(std::move(result.alignment));
}

}  // namespace temper::tokenizers
