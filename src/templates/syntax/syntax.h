#pragma once
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "templates/values/value.h"

// What the parser makes of a template.
namespace temper::templates {

struct Expression;
using ExpressionPtr = std::unique_ptr<const Expression>;
using Expressions = std::vector<ExpressionPtr>;

struct CallArguments {
  Expressions positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr star, star_star;  // *list and **dict, or null
};

struct Constant {
  Value value;
};
struct Name {
  std::string name;
};
struct Attribute {
  ExpressionPtr object;
  std::string name;
};
struct Item {
  ExpressionPtr object, key;
};
struct Slice {
  ExpressionPtr object, start, stop, step;
};  // bounds may be null
struct Call {
  ExpressionPtr function;
  CallArguments arguments;
};
struct FilterCall {
  ExpressionPtr subject;
  std::string name;
  CallArguments arguments;
};  // subject null in blocks
struct TestCall {
  ExpressionPtr subject;
  std::string name;
  CallArguments arguments;
};
struct Unary {
  char op;
  ExpressionPtr operand;
};  // '-', '+', '!'
struct Binary {
  std::string op;
  ExpressionPtr left, right;
};  // arithmetic
struct Logic {
  bool is_and;
  ExpressionPtr left, right;
};
struct Compare {
  ExpressionPtr first;
  std::vector<std::pair<std::string, ExpressionPtr>> rest;
};
struct Concat {
  Expressions parts;
};
struct Conditional {
  ExpressionPtr condition, then, otherwise;
};  // otherwise may be null
struct ListLiteral {
  Expressions items;
  bool is_tuple;
};
struct DictLiteral {
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> entries;
};

struct Expression {
  int line;
  std::variant<Constant, Name, Attribute, Item, Slice, Call, FilterCall, TestCall, Unary, Binary, Logic,
               Compare, Concat, Conditional, ListLiteral, DictLiteral>
      node;
};

// Where an assignment goes: a name, namespace.name, or a tuple of targets.
struct Target {
  std::string name;
  std::string attribute;      // of the namespace `name`, or ""
  std::vector<Target> parts;  // of a tuple; then name is ""
};

struct Statement;
using Block = std::vector<std::unique_ptr<const Statement>>;

struct Signature {
  std::vector<std::string> names;
  Expressions defaults;  // of the last names
  // Whether the body asks for what no parameter takes: further arguments, and the body of a call block.
  bool uses_varargs = false, uses_kwargs = false, uses_caller = false;
};

struct Text {
  std::string text;
};
struct Output {
  ExpressionPtr value;
};
struct For {
  Target target;
  ExpressionPtr items, filter;
  Block body, otherwise;
  bool recursive = false;  // loop(items) in the body runs it again
};                         // filter may be null
struct If {
  std::vector<std::pair<ExpressionPtr, Block>> branches;
  Block otherwise;
};
struct Set {
  Target target;
  ExpressionPtr value;
};
struct SetBlock {
  Target target;
  ExpressionPtr filter;
  Block body;
};  // filter may be null
struct Macro {
  std::string name;
  Signature signature;
  Block body;
};
struct CallBlock {
  ExpressionPtr call;
  Signature signature;
  Block body;
};
struct FilterBlock {
  ExpressionPtr filter;
  Block body;
};
struct With {
  std::vector<std::pair<Target, ExpressionPtr>> values;
  Block body;
};
struct Generation {
  Block body;
};
struct Break {};
struct Continue {};

struct Statement {
  int line;
  std::variant<Text, Output, For, If, Set, SetBlock, Macro, CallBlock, FilterBlock, With, Generation, Break,
               Continue>
      node;
};

}  // namespace temper::templates
