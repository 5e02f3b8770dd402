#include "templates/syntax/parser.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace temper::templates {
namespace {

using TokenKind = Token::Kind;

}  // namespace

Block Parser::parse() {
  Block all = block({});
  if (in_.now().kind != TokenKind::kEnd) in_.refuse(fmt::format("unexpected tag '{}'", in_.ahead().text));
  return all;
}

// Up to a tag that starts with one of `ends`, whose name is then the next token; to the end with none.
Block Parser::block(Words ends) {
  const TokenStream::DepthScope deeper(in_);
  Block statements;
  const int line = in_.line_before();
  while (true) {
    in_.begin_tag();
    const Token& token = in_.now();
    if (token.kind == TokenKind::kEnd) {
      if (ends.size() == 0) return statements;
      in_.refuse(fmt::format("the tag of line {} is not closed by '{}'", line, *std::prev(ends.end())));
    }
    if (token.kind == TokenKind::kBlockBegin &&
        std::any_of(ends.begin(), ends.end(), [&](auto end) { return in_.ahead().is_name(end); })) {
      in_.take();
      return statements;
    }
    if (token.kind == TokenKind::kText) {
      statements.push_back(std::make_unique<Statement>(Statement{token.line, Text{token.text}}));
      in_.take();
    } else if (token.kind == TokenKind::kOutputBegin) {
      const int output_line = in_.take().line;
      ExpressionPtr value = expressions_.tuple({});
      statements.push_back(std::make_unique<Statement>(Statement{output_line, Output{std::move(value)}}));
      in_.expect(TokenKind::kOutputEnd, "'}}'");
    } else {
      in_.take();
      statements.push_back(std::make_unique<Statement>(statement()));
    }
  }
}

// The body of a tag and its end tag.
Block Parser::block_until(std::string_view end, Body kind) {
  in_.expect(TokenKind::kBlockEnd, "'%}'");
  const int loops = loops_;
  if (kind == Body::kCaught) loops_ = 0;
  Block body = block({end});
  loops_ = loops;
  in_.take();
  in_.expect(TokenKind::kBlockEnd, "'%}'");
  return body;
}

Statement Parser::statement() {
  const int line = in_.now().line;
  const std::string tag = in_.expect_name();
  if (tag == "for") return for_statement(line);
  if (tag == "if") return if_statement(line);
  if (tag == "set") return set_statement(line);
  if (tag == "macro") return macro_statement(line);
  if (tag == "call") return call_statement(line);
  if (tag == "with") return with_statement(line);
  if (tag == "generation") return {line, Generation{block_until("endgeneration", Body::kCaught)}};
  if (tag == "filter") {
    ExpressionPtr filter = expressions_.filter_chain();
    return {line, FilterBlock{std::move(filter), block_until("endfilter", Body::kCaught)}};
  }
  if (tag == "break" || tag == "continue") {
    if (loops_ == 0) in_.refuse(fmt::format("'{}' outside of a loop", tag), line);
    in_.expect(TokenKind::kBlockEnd, "'%}'");
    if (tag == "break") return {line, Break{}};
    return {line, Continue{}};
  }
  in_.refuse(
      fmt::format(
          "unknown tag '{}'; supported: for, if, set, macro, call, filter, with, raw, generation, break, "
          "continue",
          tag),
      line);
}

Statement Parser::for_statement(int line) {
  For loop;
  loop.target = target(false);
  if (!in_.skip_name("in")) in_.refuse(fmt::format("expected 'in', found {}", in_.describe_now()));
  loop.items = expressions_.tuple({.with_conditional = false});
  if (in_.skip_name("if")) loop.filter = expressions_.expression();
  loop.recursive = in_.skip_name("recursive");
  in_.expect(TokenKind::kBlockEnd, "'%}'");
  ++loops_;
  loop.body = block({"else", "endfor"});
  --loops_;
  if (in_.take().text == "else")
    loop.otherwise = block_until("endfor");
  else
    in_.expect(TokenKind::kBlockEnd, "'%}'");
  return {line, std::move(loop)};
}

Statement Parser::if_statement(int line) {
  If choice;
  while (true) {
    ExpressionPtr condition = expressions_.tuple({.with_conditional = false});
    in_.expect(TokenKind::kBlockEnd, "'%}'");
    choice.branches.emplace_back(std::move(condition), block({"elif", "else", "endif"}));
    const bool more = in_.now().is_name("elif"), otherwise = in_.now().is_name("else");
    in_.take();
    if (more) continue;
    if (otherwise)
      choice.otherwise = block_until("endif");
    else
      in_.expect(TokenKind::kBlockEnd, "'%}'");
    return {line, std::move(choice)};
  }
}

Statement Parser::set_statement(int line) {
  Target to = target(true);
  if (in_.skip_operator("=")) {
    ExpressionPtr value = expressions_.tuple({});
    in_.expect(TokenKind::kBlockEnd, "'%}'");
    return {line, Set{std::move(to), std::move(value)}};
  }
  ExpressionPtr filter = in_.now().is_operator("|") ? (in_.take(), expressions_.filter_chain()) : nullptr;
  return {line, SetBlock{std::move(to), std::move(filter), block_until("endset", Body::kCaught)}};
}

Statement Parser::macro_statement(int line) {
  std::string name = in_.expect_name();
  Signature parameters = signature();
  Block body = macro_body(parameters, "endmacro");
  return {line, Macro{std::move(name), std::move(parameters), std::move(body)}};
}

Statement Parser::call_statement(int line) {
  Signature parameters;
  if (in_.now().is_operator("(")) parameters = signature();
  ExpressionPtr call = expressions_.expression();
  if (!std::holds_alternative<Call>(call->node)) in_.refuse("expected a call", line);
  Block body = macro_body(parameters, "endcall");
  return {line, CallBlock{std::move(call), std::move(parameters), std::move(body)}};
}

Statement Parser::with_statement(int line) {
  With with;
  while (in_.now().kind != TokenKind::kBlockEnd) {
    if (!with.values.empty()) in_.expect_operator(",");
    Target to = target_part(false);
    in_.expect_operator("=");
    with.values.emplace_back(std::move(to), expressions_.expression());
  }
  with.body = block_until("endwith");
  return {line, std::move(with)};
}

Signature Parser::signature() {
  Signature parameters;
  in_.expect_operator("(");
  while (!in_.now().is_operator(")")) {
    if (!parameters.names.empty()) in_.expect_operator(",");
    if (in_.now().is_operator(")")) break;
    parameters.names.push_back(in_.expect_name());
    if (in_.skip_operator("="))
      parameters.defaults.push_back(expressions_.expression());
    else if (!parameters.defaults.empty())
      in_.refuse("a parameter without default follows one with default");
  }
  in_.take();
  return parameters;
}

Block Parser::macro_body(Signature& parameters, std::string_view end) {
  Signature& used = expressions_.used_names();
  Signature around = std::exchange(used, Signature());
  Block body = block_until(end, Body::kCaught);
  parameters.uses_varargs = used.uses_varargs;
  parameters.uses_kwargs = used.uses_kwargs;
  parameters.uses_caller = used.uses_caller;
  used = std::move(around);
  used.uses_varargs |= parameters.uses_varargs;
  used.uses_kwargs |= parameters.uses_kwargs;
  used.uses_caller |= parameters.uses_caller;
  return body;
}

Target Parser::target(bool with_namespace) {
  Target first = target_part(with_namespace);
  if (!in_.now().is_operator(",")) return first;
  Target all;
  all.parts.push_back(std::move(first));
  while (in_.skip_operator(",")) {
    if (in_.now().is_name("in") || in_.now().is_operator("=") || in_.now().is_operator(")")) break;
    all.parts.push_back(target_part(with_namespace));
  }
  return all;
}

Target Parser::target_part(bool with_namespace) {
  const TokenStream::DepthScope deeper(in_);
  if (in_.skip_operator("(")) {
    Target inner = target(with_namespace);
    in_.expect_operator(")");
    return inner;
  }
  static const std::vector<std::string> kConstants = {"true", "false", "none", "True", "False", "None"};
  if (std::find(kConstants.begin(), kConstants.end(), in_.now().text) != kConstants.end())
    in_.refuse(fmt::format("can't assign to '{}'", in_.now().text));
  Target to;
  to.name = in_.expect_name();
  if (with_namespace && in_.skip_operator(".")) to.attribute = in_.expect_name();
  return to;
}

}  // namespace temper::templates
