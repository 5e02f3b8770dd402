#pragma once
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "templates/syntax/expression_parser.h"
#include "templates/syntax/syntax.h"

namespace temper::templates {

// Recursive descent over the tokens of a template: its tags. Errors are "[where:line] …".
class Parser {
 public:
  Parser(std::vector<Token> tokens, std::string_view where) : in_(std::move(tokens), where) {}
  Block parse();

 private:
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

  TokenStream in_;
  ExpressionParser expressions_{in_};
  int loops_ = 0;  // open for loops, for break and continue
};

}  // namespace temper::templates
