#include <algorithm>
#include <array>
#include <charconv>

#include "base/error.h"
#include "templates/syntax/parser.h"
#include "templates/values/operators.h"

namespace temper::templates {
namespace {

using TokenKind = Token::Kind;

template <class Node>
ExpressionPtr make(int line, Node node) {
  return std::make_unique<const Expression>(Expression{line, std::move(node)});
}

}  // namespace

bool Parser::at_tuple_end() const {
  const Token& token = now();
  return token.kind == TokenKind::kOutputEnd || token.kind == TokenKind::kBlockEnd ||
         token.is_operator(")") || token.is_name("recursive");
}

ExpressionPtr Parser::tuple(TupleRules rules) {
  const int line = now().line;
  Expressions items;
  bool comma = false;
  while (!at_tuple_end()) {
    items.push_back(expression(rules.with_conditional));
    if (!skip_operator(",")) break;
    comma = true;
  }
  if (!comma && !items.empty()) return std::move(items[0]);
  if (!comma && !rules.in_parentheses)
    refuse(fmt::format("expected an expression, found {}", describe_now()));
  return make(line, ListLiteral{std::move(items), true});
}

ExpressionPtr Parser::expression(bool with_conditional) {
  const Deeper deeper(*this);
  return with_conditional ? conditional() : disjunction();
}

ExpressionPtr Parser::conditional() {
  ExpressionPtr value = disjunction();
  while (now().is_name("if")) {
    link();
    const int line = take().line;
    ExpressionPtr condition = disjunction();
    const Deeper deeper(*this);
    ExpressionPtr otherwise = skip_name("else") ? conditional() : nullptr;
    value = make(line, Conditional{std::move(condition), std::move(value), std::move(otherwise)});
  }
  return value;
}

ExpressionPtr Parser::disjunction() {
  ExpressionPtr left = conjunction();
  while (now().is_name("or")) {
    link();
    const int line = take().line;
    ExpressionPtr right = conjunction();
    left = make(line, Logic{false, std::move(left), std::move(right)});
  }
  return left;
}

ExpressionPtr Parser::conjunction() {
  ExpressionPtr left = negation();
  while (now().is_name("and")) {
    link();
    const int line = take().line;
    ExpressionPtr right = negation();
    left = make(line, Logic{true, std::move(left), std::move(right)});
  }
  return left;
}

ExpressionPtr Parser::negation() {
  if (!now().is_name("not")) return comparison();
  const Deeper deeper(*this);
  const int line = take().line;
  return make(line, Unary{'!', negation()});
}

ExpressionPtr Parser::comparison() {
  static constexpr std::array<std::string_view, 6> kOperators = {"==", "!=", "<", "<=", ">", ">="};
  Compare compare;
  const int line = now().line;
  compare.first = sum();
  while (true) {
    const bool symbol = now().kind == TokenKind::kOperator &&
                        std::find(kOperators.begin(), kOperators.end(), now().text) != kOperators.end();
    std::string op;
    if (symbol)
      op = take().text;
    else if (skip_name("in"))
      op = "in";
    else if (now().is_name("not") && ahead().is_name("in"))
      take(), take(), op = "not in";
    else
      break;
    compare.rest.emplace_back(std::move(op), sum());
  }
  if (compare.rest.empty()) return std::move(compare.first);
  return make(line, std::move(compare));
}

ExpressionPtr Parser::sum() {
  ExpressionPtr left = concatenation();
  while (now().is_operator("+") || now().is_operator("-")) {
    link();
    const Token op = take();
    ExpressionPtr right = concatenation();
    left = make(op.line, Binary{op.text, std::move(left), std::move(right)});
  }
  return left;
}

ExpressionPtr Parser::concatenation() {
  const int line = now().line;
  Expressions parts;
  parts.push_back(product());
  while (skip_operator("~")) parts.push_back(product());
  if (parts.size() == 1) return std::move(parts[0]);
  return make(line, Concat{std::move(parts)});
}

ExpressionPtr Parser::product() {
  ExpressionPtr left = power();
  while (now().is_operator("*") || now().is_operator("/") || now().is_operator("//") ||
         now().is_operator("%")) {
    link();
    const Token op = take();
    ExpressionPtr right = power();
    left = make(op.line, Binary{op.text, std::move(left), std::move(right)});
  }
  return left;
}

ExpressionPtr Parser::power() {
  ExpressionPtr left = unary();
  while (now().is_operator("**")) {
    link();
    const int line = take().line;
    ExpressionPtr right = unary();
    left = make(line, Binary{"**", std::move(left), std::move(right)});
  }
  return left;
}

ExpressionPtr Parser::unary(bool with_filters) {
  const Deeper deeper(*this);
  ExpressionPtr node;
  if (now().is_operator("-") || now().is_operator("+")) {
    const Token op = take();
    node = make(op.line, Unary{op.text[0], unary(false)});
  } else {
    node = primary();
  }
  node = postfix(std::move(node));
  return with_filters ? filters_and_tests(std::move(node)) : std::move(node);
}

ExpressionPtr Parser::primary() {
  const Token token = now();
  if (token.kind == TokenKind::kName) {
    take();
    if (token.text == "true" || token.text == "True") return make(token.line, Constant{true});
    if (token.text == "false" || token.text == "False") return make(token.line, Constant{false});
    if (token.text == "none" || token.text == "None") return make(token.line, Constant{None()});
    if (token.text == "varargs") used_.uses_varargs = true;
    if (token.text == "kwargs") used_.uses_kwargs = true;
    if (token.text == "caller") used_.uses_caller = true;
    return make(token.line, Name{token.text});
  }
  if (token.kind == TokenKind::kString) {
    std::string value;
    while (now().kind == TokenKind::kString) value += take().text;
    return make(token.line, Constant{Value(std::move(value))});
  }
  if (token.kind == TokenKind::kInteger || token.kind == TokenKind::kFloat) return number(take());
  if (skip_operator("(")) {
    ExpressionPtr inner = tuple({.in_parentheses = true});
    expect_operator(")");
    return inner;
  }
  if (skip_operator("[")) return list_literal(token.line);
  if (skip_operator("{")) return dict_literal(token.line);
  refuse(fmt::format("unexpected {}", describe_now()));
}

ExpressionPtr Parser::number(const Token& token) {
  if (token.kind == TokenKind::kFloat) return make(token.line, Constant{*parse_float(token.text)});
  std::string_view digits = token.text;
  const char kind = digits.size() > 2 && digits[0] == '0' ? static_cast<char>(digits[1] | 0x20) : ' ';
  const int base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 10;
  if (base != 10) digits.remove_prefix(2);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (error != std::errc() || end != digits.data() + digits.size())
    refuse(fmt::format("'{}' is not an integer of 64 bits", token.text), token.line);
  return make(token.line, Constant{value});
}

ExpressionPtr Parser::list_literal(int line) {
  ListLiteral list{{}, false};
  while (!now().is_operator("]")) {
    list.items.push_back(expression());
    if (!skip_operator(",")) break;
  }
  expect_operator("]");
  return make(line, std::move(list));
}

ExpressionPtr Parser::dict_literal(int line) {
  DictLiteral dict;
  while (!now().is_operator("}")) {
    ExpressionPtr key = expression();
    expect_operator(":");
    dict.entries.emplace_back(std::move(key), expression());
    if (!skip_operator(",")) break;
  }
  expect_operator("}");
  return make(line, std::move(dict));
}

ExpressionPtr Parser::postfix(ExpressionPtr object) {
  while (true) {
    link();
    const int line = now().line;
    if (skip_operator(".")) {
      if (now().kind == TokenKind::kInteger)
        object = make(line, Item{std::move(object), number(take())});
      else
        object = make(line, Attribute{std::move(object), expect_name()});
    } else if (skip_operator("[")) {
      object = subscript(std::move(object));
    } else if (now().is_operator("(")) {
      CallArguments arguments = call_arguments();
      object = make(line, Call{std::move(object), std::move(arguments)});
    } else {
      return object;
    }
  }
}

// After "[": a key, or start:stop:step with any of them left out.
ExpressionPtr Parser::subscript(ExpressionPtr object) {
  const int line = now().line;
  const auto bound = [&]() -> ExpressionPtr {
    return now().is_operator(":") || now().is_operator("]") ? nullptr : expression();
  };
  ExpressionPtr start = bound();
  if (!now().is_operator(":")) {
    if (!start) refuse(fmt::format("expected a subscript, found {}", describe_now()));
    expect_operator("]");
    return make(line, Item{std::move(object), std::move(start)});
  }
  take();
  ExpressionPtr stop = bound(), step;
  if (skip_operator(":")) step = bound();
  expect_operator("]");
  return make(line, Slice{std::move(object), std::move(start), std::move(stop), std::move(step)});
}

CallArguments Parser::call_arguments() {
  const int line = now().line;
  CallArguments arguments;
  expect_operator("(");
  while (!now().is_operator(")")) {
    const bool named = now().kind == TokenKind::kName && ahead().is_operator("=");
    if (skip_operator("*")) {
      if (arguments.star || arguments.star_star)
        refuse("only one *list, before **dict, is allowed in a call", line);
      arguments.star = expression();
    } else if (skip_operator("**")) {
      if (arguments.star_star) refuse("only one **dict is allowed in a call", line);
      arguments.star_star = expression();
    } else if (named) {
      if (arguments.star_star) refuse("**dict must be last in a call", line);
      std::string name = take().text;
      take();
      arguments.named.emplace_back(std::move(name), expression());
    } else {
      if (arguments.star || arguments.star_star || !arguments.named.empty())
        refuse("positional arguments come first in a call", line);
      arguments.positional.push_back(expression());
    }
    if (!skip_operator(",")) break;
  }
  expect_operator(")");
  return arguments;
}

ExpressionPtr Parser::filters_and_tests(ExpressionPtr subject) {
  while (true) {
    link();
    if (skip_operator("|")) {
      subject = filter(std::move(subject));
    } else if (now().is_name("is")) {
      subject = test(std::move(subject));
    } else if (now().is_operator("(")) {
      const int line = now().line;
      CallArguments arguments = call_arguments();
      subject = make(line, Call{std::move(subject), std::move(arguments)});
    } else {
      return subject;
    }
  }
}

// After "|".
ExpressionPtr Parser::filter(ExpressionPtr subject) {
  FilterCall call{std::move(subject), "", {}};
  const int line = now().line;
  call.name = expect_name();
  if (now().is_operator("(")) call.arguments = call_arguments();
  return make(line, std::move(call));
}

ExpressionPtr Parser::filter_chain() {
  ExpressionPtr chain = filter(nullptr);
  while (skip_operator("|")) {
    link();
    chain = filter(std::move(chain));
  }
  return chain;
}

ExpressionPtr Parser::test(ExpressionPtr subject) {
  const int line = take().line;
  const bool negated = skip_name("not");
  TestCall call{std::move(subject), expect_name(), {}};
  const Token& token = now();
  const bool literal = token.kind == TokenKind::kString || token.kind == TokenKind::kInteger ||
                       token.kind == TokenKind::kFloat || token.is_operator("[") || token.is_operator("{");
  const bool name = token.kind == TokenKind::kName && !token.is_name("else") && !token.is_name("or") &&
                    !token.is_name("and");
  if (token.is_operator("(")) {
    call.arguments = call_arguments();
  } else if (literal || name) {
    if (token.is_name("is")) refuse("tests cannot be chained with 'is'");
    // What ends an expression elsewhere is no argument.
    call.arguments.positional.push_back(postfix(primary()));
  }
  ExpressionPtr result = make(line, std::move(call));
  return negated ? make(line, Unary{'!', std::move(result)}) : std::move(result);
}

}  // namespace temper::templates
