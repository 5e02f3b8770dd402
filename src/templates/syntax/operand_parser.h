#pragma once
#include "templates/syntax/syntax.h"
#include "templates/syntax/token_stream.h"

namespace temper::templates {

class ExpressionParser;

// What operators stand between: names, literals, and what follows them (attributes, subscripts, calls,
// filters, tests).
class OperandParser {
 public:
  OperandParser(TokenStream& in, ExpressionParser& expressions) : in_(in), expressions_(expressions) {}

  ExpressionPtr primary();
  ExpressionPtr postfix(ExpressionPtr object);
  ExpressionPtr filters_and_tests(ExpressionPtr subject);
  ExpressionPtr filter_chain();  // of filter and set blocks

  // Which of varargs, kwargs and caller were read since this was reset.
  Signature& used_names() { return used_names_; }

 private:
  ExpressionPtr number(const Token& token);
  ExpressionPtr list_literal(int line);
  ExpressionPtr dict_literal(int line);
  ExpressionPtr subscript(ExpressionPtr object);
  ExpressionPtr filter(ExpressionPtr subject);
  ExpressionPtr test(ExpressionPtr subject);
  CallArguments call_arguments();

  TokenStream& in_;
  ExpressionParser& expressions_;
  Signature used_names_;
};

}  // namespace temper::templates
