#include "templates/syntax/parser.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace temper::templates {
namespace {

using TokenKind = Token::Kind;

}  // namespace

Token Parser::take() {
  if (at_ + 1 >= tokens_.size()) return tokens_.back();
  return tokens_[at_++];
}

bool Parser::skip_name(std::string_view word) {
  if (!now().is_name(word)) return false;
  take();
  return true;
}

bool Parser::skip_operator(std::string_view op) {
  if (!now().is_operator(op)) return false;
  take();
  return true;
}

void Parser::expect_operator(std::string_view op) {
  if (!skip_operator(op)) refuse(fmt::format("expected '{}', found {}", op, describe_now()));
}

std::string Parser::expect_name() {
  if (now().kind != TokenKind::kName) refuse(fmt::format("expected a name, found {}", describe_now()));
  return take().text;
}

void Parser::expect(TokenKind kind, std::string_view what) {
  if (now().kind != kind) refuse(fmt::format("expected {}, found {}", what, describe_now()));
  take();
}

void Parser::refuse(std::string_view what, int line) const {
  fail("[{}:{}] {}", where_, line ? line : now().line, what);
}

void Parser::link() {
  if (++links_ > 3000) refuse("an expression has too many operators");
}

std::string Parser::describe_now() const {
  switch (now().kind) {
    case TokenKind::kText:
      return "text";
    case TokenKind::kBlockBegin:
      return "'{%'";
    case TokenKind::kBlockEnd:
      return "'%}'";
    case TokenKind::kOutputBegin:
      return "'{{'";
    case TokenKind::kOutputEnd:
      return "'}}'";
    case TokenKind::kString:
      return "a string";
    case TokenKind::kEnd:
      return "the end of the template";
    default:
      return fmt::format("'{}'", now().text);
  }
}

Block Parser::parse() {
  Block all = block({});
  if (now().kind != TokenKind::kEnd) refuse(fmt::format("unexpected tag '{}'", ahead().text));
  return all;
}

// Up to a tag that starts with one of `ends`, whose name is then the next token; to the end with none.
Block Parser::block(Words ends) {
  const Deeper deeper(*this);
  Block statements;
  const int line = at_ > 0 ? tokens_[at_ - 1].line : 1;
  while (true) {
    links_ = 0;
    const Token& token = now();
    if (token.kind == TokenKind::kEnd) {
      if (ends.size() == 0) return statements;
      refuse(fmt::format("the tag of line {} is not closed by '{}'", line, *std::prev(ends.end())));
    }
    if (token.kind == TokenKind::kBlockBegin &&
        std::any_of(ends.begin(), ends.end(), [&](auto end) { return ahead().is_name(end); })) {
      take();
      return statements;
    }
    if (token.kind == TokenKind::kText) {
      statements.push_back(std::make_unique<Statement>(Statement{token.line, Text{token.text}}));
      take();
    } else if (token.kind == TokenKind::kOutputBegin) {
      const int output_line = take().line;
      ExpressionPtr value = tuple({});
      statements.push_back(std::make_unique<Statement>(Statement{output_line, Output{std::move(value)}}));
      expect(TokenKind::kOutputEnd, "'}}'");
    } else {
      take();
      statements.push_back(std::make_unique<Statement>(statement()));
    }
  }
}

// The body of a tag and its end tag.
Block Parser::block_until(std::string_view end, Body kind) {
  expect(TokenKind::kBlockEnd, "'%}'");
  const int loops = loops_;
  if (kind == Body::kCaught) loops_ = 0;
  Block body = block({end});
  loops_ = loops;
  take();
  expect(TokenKind::kBlockEnd, "'%}'");
  return body;
}

Statement Parser::statement() {
  const int line = now().line;
  const std::string tag = expect_name();
  if (tag == "for") return for_statement(line);
  if (tag == "if") return if_statement(line);
  if (tag == "set") return set_statement(line);
  if (tag == "macro") return macro_statement(line);
  if (tag == "call") return call_statement(line);
  if (tag == "with") return with_statement(line);
  if (tag == "generation") return {line, Generation{block_until("endgeneration", Body::kCaught)}};
  if (tag == "filter") {
    ExpressionPtr filter = filter_chain();
    return {line, FilterBlock{std::move(filter), block_until("endfilter", Body::kCaught)}};
  }
  if (tag == "break" || tag == "continue") {
    if (loops_ == 0) refuse(fmt::format("'{}' outside of a loop", tag), line);
    expect(TokenKind::kBlockEnd, "'%}'");
    if (tag == "break") return {line, Break{}};
    return {line, Continue{}};
  }
  refuse(fmt::format(
             "unknown tag '{}'; supported: for, if, set, macro, call, filter, with, raw, generation, break, "
             "continue",
             tag),
         line);
}

Statement Parser::for_statement(int line) {
  For loop;
  loop.target = target(false);
  if (!skip_name("in")) refuse(fmt::format("expected 'in', found {}", describe_now()));
  loop.items = tuple({.with_conditional = false});
  if (skip_name("if")) loop.filter = expression();
  loop.recursive = skip_name("recursive");
  expect(TokenKind::kBlockEnd, "'%}'");
  ++loops_;
  loop.body = block({"else", "endfor"});
  --loops_;
  if (take().text == "else")
    loop.otherwise = block_until("endfor");
  else
    expect(TokenKind::kBlockEnd, "'%}'");
  return {line, std::move(loop)};
}

Statement Parser::if_statement(int line) {
  If choice;
  while (true) {
    ExpressionPtr condition = tuple({.with_conditional = false});
    expect(TokenKind::kBlockEnd, "'%}'");
    choice.branches.emplace_back(std::move(condition), block({"elif", "else", "endif"}));
    const bool more = now().is_name("elif"), otherwise = now().is_name("else");
    take();
    if (more) continue;
    if (otherwise)
      choice.otherwise = block_until("endif");
    else
      expect(TokenKind::kBlockEnd, "'%}'");
    return {line, std::move(choice)};
  }
}

Statement Parser::set_statement(int line) {
  Target to = target(true);
  if (skip_operator("=")) {
    ExpressionPtr value = tuple({});
    expect(TokenKind::kBlockEnd, "'%}'");
    return {line, Set{std::move(to), std::move(value)}};
  }
  ExpressionPtr filter = now().is_operator("|") ? (take(), filter_chain()) : nullptr;
  return {line, SetBlock{std::move(to), std::move(filter), block_until("endset", Body::kCaught)}};
}

Statement Parser::macro_statement(int line) {
  std::string name = expect_name();
  Signature parameters = signature();
  Block body = macro_body(parameters, "endmacro");
  return {line, Macro{std::move(name), std::move(parameters), std::move(body)}};
}

Statement Parser::call_statement(int line) {
  Signature parameters;
  if (now().is_operator("(")) parameters = signature();
  ExpressionPtr call = expression();
  if (!std::holds_alternative<Call>(call->node)) refuse("expected a call", line);
  Block body = macro_body(parameters, "endcall");
  return {line, CallBlock{std::move(call), std::move(parameters), std::move(body)}};
}

Statement Parser::with_statement(int line) {
  With with;
  while (now().kind != TokenKind::kBlockEnd) {
    if (!with.values.empty()) expect_operator(",");
    Target to = target_part(false);
    expect_operator("=");
    with.values.emplace_back(std::move(to), expression());
  }
  with.body = block_until("endwith");
  return {line, std::move(with)};
}

Signature Parser::signature() {
  Signature parameters;
  expect_operator("(");
  while (!now().is_operator(")")) {
    if (!parameters.names.empty()) expect_operator(",");
    if (now().is_operator(")")) break;
    parameters.names.push_back(expect_name());
    if (skip_operator("="))
      parameters.defaults.push_back(expression());
    else if (!parameters.defaults.empty())
      refuse("a parameter without default follows one with default");
  }
  take();
  return parameters;
}

Block Parser::macro_body(Signature& parameters, std::string_view end) {
  Signature around = std::exchange(used_, Signature());
  Block body = block_until(end, Body::kCaught);
  parameters.uses_varargs = used_.uses_varargs;
  parameters.uses_kwargs = used_.uses_kwargs;
  parameters.uses_caller = used_.uses_caller;
  used_ = std::move(around);
  used_.uses_varargs |= parameters.uses_varargs;
  used_.uses_kwargs |= parameters.uses_kwargs;
  used_.uses_caller |= parameters.uses_caller;
  return body;
}

Target Parser::target(bool with_namespace) {
  Target first = target_part(with_namespace);
  if (!now().is_operator(",")) return first;
  Target all;
  all.parts.push_back(std::move(first));
  while (skip_operator(",")) {
    if (now().is_name("in") || now().is_operator("=") || now().is_operator(")")) break;
    all.parts.push_back(target_part(with_namespace));
  }
  return all;
}

Target Parser::target_part(bool with_namespace) {
  const Deeper deeper(*this);
  if (skip_operator("(")) {
    Target inner = target(with_namespace);
    expect_operator(")");
    return inner;
  }
  static const std::vector<std::string> kConstants = {"true", "false", "none", "True", "False", "None"};
  if (std::find(kConstants.begin(), kConstants.end(), now().text) != kConstants.end())
    refuse(fmt::format("can't assign to '{}'", now().text));
  Target to;
  to.name = expect_name();
  if (with_namespace && skip_operator(".")) to.attribute = expect_name();
  return to;
}

}  // namespace temper::templates
