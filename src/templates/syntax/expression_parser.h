#pragma once
#include <initializer_list>
#include <string_view>

#include "templates/syntax/operand_parser.h"

namespace temper::templates {

// Expressions by the precedence of their operators.
class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream& in) : in_(in), operands_(in, *this) {}
  ExpressionParser(const ExpressionParser&) = delete;  // operands know where it is
  ExpressionParser& operator=(const ExpressionParser&) = delete;

  struct TupleRules {
    bool with_conditional = true;
    bool in_parentheses = false;
  };
  ExpressionPtr tuple(TupleRules rules);
  ExpressionPtr expression(bool with_conditional = true);
  ExpressionPtr filter_chain() { return operands_.filter_chain(); }  // of filter and set blocks
  Signature& used_names() { return operands_.used_names(); }

 private:
  bool at_tuple_end() const;
  ExpressionPtr conditional();
  // Operands with any of these operators between them, from the left.
  template <class F>
  ExpressionPtr from_left(const F& operand, std::initializer_list<std::string_view> operators);
  ExpressionPtr disjunction();
  ExpressionPtr conjunction();
  ExpressionPtr negation();
  ExpressionPtr comparison();
  ExpressionPtr sum();
  ExpressionPtr concatenation();
  ExpressionPtr product();
  ExpressionPtr power();
  ExpressionPtr unary(bool with_filters = true);

  TokenStream& in_;
  OperandParser operands_;
};

}  // namespace temper::templates
