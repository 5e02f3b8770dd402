#pragma once
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "templates/syntax/lexer.h"
#include "templates/syntax/syntax.h"

namespace temper::templates {

// Recursive descent over the tokens of a template. Errors are "[where:line] …".
class Parser {
 public:
  Parser(std::vector<Token> tokens, std::string_view where) : tokens_(std::move(tokens)), where_(where) {}
  Block parse();

 private:
  // tokens
  const Token& now() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token take();
  bool skip_name(std::string_view word);
  bool skip_operator(std::string_view op);
  void expect_operator(std::string_view op);
  std::string expect_name();
  void expect(Token::Kind kind, std::string_view what);
  [[noreturn]] void refuse(std::string_view what, int line = 0) const;
  std::string describe_now() const;
  class Deeper;  // counts levels of nesting
  void link();   // counts the links of chains such as a + b + c, which nest, too

  // statements: parser.cpp
  using Words = std::initializer_list<std::string_view>;
  Block block(Words ends);
  enum class Body { kInline, kCaught };  // break and continue do not leave a body whose text is caught
  Block block_until(std::string_view end, Body kind = Body::kInline);
  Statement statement();
  Statement for_statement(int line);
  Statement if_statement(int line);
  Statement set_statement(int line);
  Statement macro_statement(int line);
  Statement call_statement(int line);
  Statement with_statement(int line);
  Signature signature();
  Block macro_body(Signature& parameters, std::string_view end);
  Target target(bool with_namespace);
  Target target_part(bool with_namespace);
  int loops_ = 0;  // open for loops, for break and continue

  // expressions: parse_expression.cpp
  struct TupleRules {
    bool with_conditional = true;
    bool in_parentheses = false;
  };
  ExpressionPtr tuple(TupleRules rules);
  ExpressionPtr expression(bool with_conditional = true);
  ExpressionPtr conditional();
  ExpressionPtr disjunction();
  ExpressionPtr conjunction();
  ExpressionPtr negation();
  ExpressionPtr comparison();
  ExpressionPtr sum();
  ExpressionPtr concatenation();
  ExpressionPtr product();
  ExpressionPtr power();
  ExpressionPtr unary(bool with_filters = true);
  ExpressionPtr primary();
  ExpressionPtr number(const Token& token);
  ExpressionPtr list_literal(int line);
  ExpressionPtr dict_literal(int line);
  ExpressionPtr postfix(ExpressionPtr object);
  ExpressionPtr subscript(ExpressionPtr object);
  ExpressionPtr filters_and_tests(ExpressionPtr subject);
  ExpressionPtr filter(ExpressionPtr subject);
  ExpressionPtr test(ExpressionPtr subject);
  ExpressionPtr filter_chain();  // of filter and set blocks
  CallArguments call_arguments();
  bool at_tuple_end() const;

  std::vector<Token> tokens_;
  std::string where_;
  size_t at_ = 0;
  int depth_ = 0;
  Signature used_;  // of the innermost macro: only what its body uses
  int links_ = 0;   // of the tag at hand
};

class Parser::Deeper {
 public:
  explicit Deeper(Parser& parser) : parser_(parser) {
    if (++parser_.depth_ > 120) parser_.refuse("the template is nested too deeply");
  }
  ~Deeper() { --parser_.depth_; }

 private:
  Parser& parser_;
};

}  // namespace temper::templates
