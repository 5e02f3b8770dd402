#include "templates/syntax/expression_parser.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "templates/syntax/make_expression.h"

namespace temper::templates {

bool ExpressionParser::at_tuple_end() const {
  const Token& token = in_.now();
  return token.kind == Token::Kind::kOutputEnd || token.kind == Token::Kind::kBlockEnd ||
         token.is_operator(")") || token.is_name("recursive");
}

ExpressionPtr ExpressionParser::tuple(TupleRules rules) {
  const int line = in_.now().line;
  Expressions items;
  bool comma = false;
  while (!at_tuple_end()) {
    items.push_back(expression(rules.with_conditional));
    if (!in_.skip_operator(",")) break;
    comma = true;
  }
  if (!comma && !items.empty()) return std::move(items[0]);
  if (!comma && !rules.in_parentheses)
    in_.refuse(fmt::format("expected an expression, found {}", in_.describe_now()));
  return make_expression(line, ListLiteral{std::move(items), true});
}

ExpressionPtr ExpressionParser::expression(bool with_conditional) {
  const TokenStream::DepthScope deeper(in_);
  return with_conditional ? conditional() : disjunction();
}

ExpressionPtr ExpressionParser::conditional() {
  ExpressionPtr value = disjunction();
  while (in_.now().is_name("if")) {
    in_.link();
    const int line = in_.take().line;
    ExpressionPtr condition = disjunction();
    const TokenStream::DepthScope deeper(in_);
    ExpressionPtr otherwise = in_.skip_name("else") ? conditional() : nullptr;
    value = make_expression(line, Conditional{std::move(condition), std::move(value), std::move(otherwise)});
  }
  return value;
}

template <class F>
ExpressionPtr ExpressionParser::from_left(const F& operand,
                                          std::initializer_list<std::string_view> operators) {
  ExpressionPtr left = operand();
  const auto is_here = [&](std::string_view text) {
    return in_.now().is_name(text) || in_.now().is_operator(text);
  };
  while (std::any_of(operators.begin(), operators.end(), is_here)) {
    in_.link();
    const Token op = in_.take();
    ExpressionPtr right = operand();
    left = op.kind == Token::Kind::kOperator
               ? make_expression(op.line, Binary{op.text, std::move(left), std::move(right)})
               : make_expression(op.line, Logic{op.text == "and", std::move(left), std::move(right)});
  }
  return left;
}

ExpressionPtr ExpressionParser::disjunction() {
  return from_left([this] { return conjunction(); }, {"or"});
}

ExpressionPtr ExpressionParser::conjunction() {
  return from_left([this] { return negation(); }, {"and"});
}

ExpressionPtr ExpressionParser::negation() {
  if (!in_.now().is_name("not")) return comparison();
  const TokenStream::DepthScope deeper(in_);
  const int line = in_.take().line;
  return make_expression(line, Unary{'!', negation()});
}

ExpressionPtr ExpressionParser::comparison() {
  static constexpr std::array<std::string_view, 6> kOperators = {"==", "!=", "<", "<=", ">", ">="};
  Compare compare;
  const int line = in_.now().line;
  compare.first = sum();
  while (true) {
    const bool symbol = in_.now().kind == Token::Kind::kOperator &&
                        std::find(kOperators.begin(), kOperators.end(), in_.now().text) != kOperators.end();
    std::string op;
    if (symbol)
      op = in_.take().text;
    else if (in_.skip_name("in"))
      op = "in";
    else if (in_.now().is_name("not") && in_.ahead().is_name("in"))
      in_.take(), in_.take(), op = "not in";
    else
      break;
    compare.rest.emplace_back(std::move(op), sum());
  }
  if (compare.rest.empty()) return std::move(compare.first);
  return make_expression(line, std::move(compare));
}

ExpressionPtr ExpressionParser::sum() {
  return from_left([this] { return concatenation(); }, {"+", "-"});
}

ExpressionPtr ExpressionParser::concatenation() {
  const int line = in_.now().line;
  Expressions parts;
  parts.push_back(product());
  while (in_.skip_operator("~")) parts.push_back(product());
  if (parts.size() == 1) return std::move(parts[0]);
  return make_expression(line, Concat{std::move(parts)});
}

ExpressionPtr ExpressionParser::product() {
  return from_left([this] { return power(); }, {"*", "/", "//", "%"});
}

ExpressionPtr ExpressionParser::power() {
  return from_left([this] { return unary(); }, {"**"});
}

ExpressionPtr ExpressionParser::unary(bool with_filters) {
  const TokenStream::DepthScope deeper(in_);
  ExpressionPtr node;
  if (in_.now().is_operator("-") || in_.now().is_operator("+")) {
    const Token op = in_.take();
    node = make_expression(op.line, Unary{op.text[0], unary(false)});
  } else {
    node = operands_.primary();
  }
  node = operands_.postfix(std::move(node));
  return with_filters ? operands_.filters_and_tests(std::move(node)) : std::move(node);
}

}  // namespace temper::templates
