#include "templates/syntax/operand_parser.h"

#include "base/error.h"
#include "base/numbers.h"
#include "templates/syntax/expression_parser.h"
#include "templates/syntax/make_expression.h"
#include "templates/values/operators.h"

namespace temper::templates {

ExpressionPtr OperandParser::primary() {
  const Token token = in_.now();
  if (token.kind == Token::Kind::kName) {
    in_.take();
    if (token.text == "true" || token.text == "True") return make_expression(token.line, Constant{true});
    if (token.text == "false" || token.text == "False") return make_expression(token.line, Constant{false});
    if (token.text == "none" || token.text == "None") return make_expression(token.line, Constant{None()});
    if (token.text == "varargs") used_names_.uses_varargs = true;
    if (token.text == "kwargs") used_names_.uses_kwargs = true;
    if (token.text == "caller") used_names_.uses_caller = true;
    return make_expression(token.line, Name{token.text});
  }
  if (token.kind == Token::Kind::kString) {
    std::string value;
    while (in_.now().kind == Token::Kind::kString) value += in_.take().text;
    return make_expression(token.line, Constant{Value(std::move(value))});
  }
  if (token.kind == Token::Kind::kInteger || token.kind == Token::Kind::kFloat) return number(in_.take());
  if (in_.skip_operator("(")) {
    ExpressionPtr inner = expressions_.tuple({.in_parentheses = true});
    in_.expect_operator(")");
    return inner;
  }
  if (in_.skip_operator("[")) return list_literal(token.line);
  if (in_.skip_operator("{")) return dict_literal(token.line);
  in_.refuse(fmt::format("unexpected {}", in_.describe_now()));
}

ExpressionPtr OperandParser::number(const Token& token) {
  if (token.kind == Token::Kind::kFloat)
    return make_expression(token.line, Constant{*parse_float(token.text)});
  std::string_view digits = token.text;
  const char kind = digits.size() > 2 && digits[0] == '0' ? static_cast<char>(digits[1] | 0x20) : ' ';
  const int base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 10;
  if (base != 10) digits.remove_prefix(2);
  const auto value = parse_integer_of<int64_t>(digits, base);
  if (!value) in_.refuse(fmt::format("'{}' is not an integer of 64 bits", token.text), token.line);
  return make_expression(token.line, Constant{*value});
}

ExpressionPtr OperandParser::list_literal(int line) {
  ListLiteral list{{}, false};
  while (!in_.now().is_operator("]")) {
    list.items.push_back(expressions_.expression());
    if (!in_.skip_operator(",")) break;
  }
  in_.expect_operator("]");
  return make_expression(line, std::move(list));
}

ExpressionPtr OperandParser::dict_literal(int line) {
  DictLiteral dict;
  while (!in_.now().is_operator("}")) {
    ExpressionPtr key = expressions_.expression();
    in_.expect_operator(":");
    dict.entries.emplace_back(std::move(key), expressions_.expression());
    if (!in_.skip_operator(",")) break;
  }
  in_.expect_operator("}");
  return make_expression(line, std::move(dict));
}

ExpressionPtr OperandParser::postfix(ExpressionPtr object) {
  while (true) {
    in_.link();
    const int line = in_.now().line;
    if (in_.skip_operator(".")) {
      if (in_.now().kind == Token::Kind::kInteger)
        object = make_expression(line, Item{std::move(object), number(in_.take())});
      else
        object = make_expression(line, Attribute{std::move(object), in_.expect_name()});
    } else if (in_.skip_operator("[")) {
      object = subscript(std::move(object));
    } else if (in_.now().is_operator("(")) {
      CallArguments arguments = call_arguments();
      object = make_expression(line, Call{std::move(object), std::move(arguments)});
    } else {
      return object;
    }
  }
}

// After "[": a key, or start:stop:step with any of them left out.
ExpressionPtr OperandParser::subscript(ExpressionPtr object) {
  const int line = in_.now().line;
  const auto bound = [&]() -> ExpressionPtr {
    return in_.now().is_operator(":") || in_.now().is_operator("]") ? nullptr : expressions_.expression();
  };
  ExpressionPtr start = bound();
  if (!in_.now().is_operator(":")) {
    if (!start) in_.refuse(fmt::format("expected a subscript, found {}", in_.describe_now()));
    in_.expect_operator("]");
    return make_expression(line, Item{std::move(object), std::move(start)});
  }
  in_.take();
  ExpressionPtr stop = bound(), step;
  if (in_.skip_operator(":")) step = bound();
  in_.expect_operator("]");
  return make_expression(line, Slice{std::move(object), std::move(start), std::move(stop), std::move(step)});
}

CallArguments OperandParser::call_arguments() {
  const int line = in_.now().line;
  CallArguments arguments;
  in_.expect_operator("(");
  while (!in_.now().is_operator(")")) {
    const bool named = in_.now().kind == Token::Kind::kName && in_.ahead().is_operator("=");
    if (in_.skip_operator("*")) {
      if (arguments.star || arguments.star_star)
        in_.refuse("only one *list, before **dict, is allowed in a call", line);
      arguments.star = expressions_.expression();
    } else if (in_.skip_operator("**")) {
      if (arguments.star_star) in_.refuse("only one **dict is allowed in a call", line);
      arguments.star_star = expressions_.expression();
    } else if (named) {
      if (arguments.star_star) in_.refuse("**dict must be last in a call", line);
      std::string name = in_.take().text;
      in_.take();
      arguments.named.emplace_back(std::move(name), expressions_.expression());
    } else {
      if (arguments.star || arguments.star_star || !arguments.named.empty())
        in_.refuse("positional arguments come first in a call", line);
      arguments.positional.push_back(expressions_.expression());
    }
    if (!in_.skip_operator(",")) break;
  }
  in_.expect_operator(")");
  return arguments;
}

ExpressionPtr OperandParser::filters_and_tests(ExpressionPtr subject) {
  while (true) {
    in_.link();
    if (in_.skip_operator("|")) {
      subject = filter(std::move(subject));
    } else if (in_.now().is_name("is")) {
      subject = test(std::move(subject));
    } else if (in_.now().is_operator("(")) {
      const int line = in_.now().line;
      CallArguments arguments = call_arguments();
      subject = make_expression(line, Call{std::move(subject), std::move(arguments)});
    } else {
      return subject;
    }
  }
}

// After "|".
ExpressionPtr OperandParser::filter(ExpressionPtr subject) {
  FilterCall call{std::move(subject), "", {}};
  const int line = in_.now().line;
  call.name = in_.expect_name();
  if (in_.now().is_operator("(")) call.arguments = call_arguments();
  return make_expression(line, std::move(call));
}

ExpressionPtr OperandParser::filter_chain() {
  ExpressionPtr chain = filter(nullptr);
  while (in_.skip_operator("|")) {
    in_.link();
    chain = filter(std::move(chain));
  }
  return chain;
}

ExpressionPtr OperandParser::test(ExpressionPtr subject) {
  const int line = in_.take().line;
  const bool negated = in_.skip_name("not");
  TestCall call{std::move(subject), in_.expect_name(), {}};
  const Token& token = in_.now();
  const bool literal = token.kind == Token::Kind::kString || token.kind == Token::Kind::kInteger ||
                       token.kind == Token::Kind::kFloat || token.is_operator("[") || token.is_operator("{");
  const bool name = token.kind == Token::Kind::kName && !token.is_name("else") && !token.is_name("or") &&
                    !token.is_name("and");
  if (token.is_operator("(")) {
    call.arguments = call_arguments();
  } else if (literal || name) {
    if (token.is_name("is")) in_.refuse("tests cannot be chained with 'is'");
    // What ends an expression elsewhere is no argument.
    call.arguments.positional.push_back(postfix(primary()));
  }
  ExpressionPtr result = make_expression(line, std::move(call));
  return negated ? make_expression(line, Unary{'!', std::move(result)}) : std::move(result);
}

}  // namespace temper::templates
