#include "templates/syntax/token_stream.h"

#include "base/error.h"

namespace temper::templates {

TokenStream::DepthScope::DepthScope(TokenStream& stream) : stream_(stream) {
  if (++stream_.depth_ > 120) stream_.refuse("the template is nested too deeply");
}

Token TokenStream::take() {
  if (at_ + 1 >= tokens_.size()) return tokens_.back();
  return tokens_[at_++];
}

bool TokenStream::skip_name(std::string_view word) {
  if (!now().is_name(word)) return false;
  take();
  return true;
}

bool TokenStream::skip_operator(std::string_view op) {
  if (!now().is_operator(op)) return false;
  take();
  return true;
}

void TokenStream::expect_operator(std::string_view op) {
  if (!skip_operator(op)) refuse(fmt::format("expected '{}', found {}", op, describe_now()));
}

std::string TokenStream::expect_name() {
  if (now().kind != Token::Kind::kName) refuse(fmt::format("expected a name, found {}", describe_now()));
  return take().text;
}

void TokenStream::expect(Token::Kind kind, std::string_view what) {
  if (now().kind != kind) refuse(fmt::format("expected {}, found {}", what, describe_now()));
  take();
}

void TokenStream::refuse(std::string_view what, int line) const {
  fail("[{}:{}] {}", where_, line ? line : now().line, what);
}

void TokenStream::link() {
  if (++links_ > 3000) refuse("an expression has too many operators");
}

std::string TokenStream::describe_now() const {
  switch (now().kind) {
    case Token::Kind::kText:
      return "text";
    case Token::Kind::kBlockBegin:
      return "'{%'";
    case Token::Kind::kBlockEnd:
      return "'%}'";
    case Token::Kind::kOutputBegin:
      return "'{{'";
    case Token::Kind::kOutputEnd:
      return "'}}'";
    case Token::Kind::kString:
      return "a string";
    case Token::Kind::kEnd:
      return "the end of the template";
    default:
      return fmt::format("'{}'", now().text);
  }
}

}  // namespace temper::templates
