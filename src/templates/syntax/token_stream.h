#pragma once
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "templates/syntax/lexer.h"

namespace temper::templates {

// The tokens of a template, as parsers take them one after the other. Errors are "[where:line] …".
class TokenStream {
 public:
  TokenStream(std::vector<Token> tokens, std::string_view where)
      : tokens_(std::move(tokens)), where_(where) {}

  const Token& now() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  int line_before() const { return at_ > 0 ? tokens_[at_ - 1].line : 1; }  // of the token that was taken last
  Token take();
  bool skip_name(std::string_view word);
  bool skip_operator(std::string_view op);
  void expect_operator(std::string_view op);
  std::string expect_name();
  void expect(Token::Kind kind, std::string_view what);
  [[noreturn]] void refuse(std::string_view what, int line = 0) const;  // line 0: that of now()
  std::string describe_now() const;

  // Counts levels of nesting, of which there may be 120.
  class DepthScope {
   public:
    explicit DepthScope(TokenStream& stream);
    ~DepthScope() { --stream_.depth_; }

   private:
    TokenStream& stream_;
  };
  // Counts the links of chains such as a + b + c, which nest, too: 3,000 in a tag.
  void link();
  void begin_tag() { links_ = 0; }

 private:
  std::vector<Token> tokens_;
  std::string where_;
  size_t at_ = 0;
  int depth_ = 0;
  int links_ = 0;  // of the tag at hand
};

}  // namespace temper::templates
