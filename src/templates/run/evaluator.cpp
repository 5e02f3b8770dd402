#include "templates/run/evaluator.h"

#include "base/error.h"
#include "templates/builtins/filters.h"
#include "templates/builtins/lookup.h"
#include "templates/builtins/predicates.h"
#include "templates/values/limits.h"
#include "templates/values/loop.h"
#include "templates/values/operators.h"
#include "templates/values/print.h"
#include "templates/values/traced_text.h"

namespace temper::templates {
namespace {

constexpr int kMostLevels = 1200;

// What reads a whole value takes the longer, the larger it is.
void spend_on(const Value& value) {
  if (value.is_string())
    spend(value.text().size());
  else if (value.is_dict())
    spend(value.entries().size());
}

}  // namespace

Evaluator::DepthScope::DepthScope(Evaluator& evaluator) : depth_(evaluator.depth_) {
  if (++depth_ > kMostLevels) {
    --depth_;
    fail("calls, statements and expressions are nested more than {} levels deep", kMostLevels);
  }
}

Evaluator::DepthScope::~DepthScope() { --depth_; }

// The line of an error is that of the innermost expression: it is put back only when all went well.
Value Evaluator::evaluate(const Expression& expression) {
  const DepthScope deeper(*this);
  spend();
  const int line = std::exchange(line_, expression.line);
  Value value = std::visit([&](const auto& node) { return evaluate(node); }, expression.node);
  line_ = line;
  return value;
}

Value Evaluator::evaluate(const Name& node) {
  if (const Value* value = scopes_.find(node.name)) return *value;
  return Undefined{fmt::format("'{}' is undefined", node.name)};
}

Value Evaluator::evaluate(const Attribute& node) { return get_attribute(evaluate(*node.object), node.name); }

Value Evaluator::evaluate(const Item& node) {
  const Value object = evaluate(*node.object);
  return get_item(object, evaluate(*node.key));
}

Value Evaluator::evaluate(const Slice& node) {
  const Value object = evaluate(*node.object);
  const auto bound = [&](const ExpressionPtr& part) { return part ? evaluate(*part) : Value(None()); };
  const Value start = bound(node.start), stop = bound(node.stop), step = bound(node.step);
  return get_slice(object, start, stop, step);
}

Value Evaluator::evaluate(const Call& node) { return call(node, nullptr); }

Value Evaluator::call(const Call& node, const Value* caller) {
  const Value function = evaluate(*node.function);
  Arguments arguments = evaluate_arguments(node.arguments);
  if (caller) arguments.named.emplace_back("caller", *caller);
  require_defined(function);
  if (function.is(Value::Kind::kLoop)) return function.loop().call(arguments);
  if (!function.is(Value::Kind::kFunction)) fail("'{}' object is not callable", function.type_name());
  return function.function().call(arguments);
}

Arguments Evaluator::evaluate_arguments(const CallArguments& node) {
  Arguments arguments;
  for (const auto& part : node.positional) arguments.positional.push_back(evaluate(*part));
  if (node.star)
    for (Value& item : items_of(evaluate(*node.star))) arguments.positional.push_back(std::move(item));
  for (const auto& [name, part] : node.named) arguments.named.emplace_back(name, evaluate(*part));
  if (node.star_star) {
    const Value values = evaluate(*node.star_star);
    if (!values.is_dict()) fail("argument after ** must be a dict, found {}", values.type_name());
    for (const auto& [key, value] : values.entries()) {
      if (!key.is_string()) fail("keywords must be strings, found {}", key.type_name());
      arguments.named.emplace_back(key.text(), value);
    }
  }
  return arguments;
}

Value Evaluator::evaluate(const FilterCall& node) {
  const Value subject = node.subject ? evaluate(*node.subject) : *block_text_;
  const Arguments arguments = evaluate_arguments(node.arguments);
  spend_on(subject);
  return filter_named(node.name)(subject, arguments);
}

Value Evaluator::apply_to_text(const Expression& filter, const Value& text) {
  const Value* before = std::exchange(block_text_, &text);
  Value result = evaluate(filter);
  block_text_ = before;
  return result;
}

Value Evaluator::evaluate(const TestCall& node) {
  const Value subject = evaluate(*node.subject);
  const Arguments arguments = evaluate_arguments(node.arguments);
  spend_on(subject);
  return predicate_named(node.name)(subject, arguments);
}

Value Evaluator::evaluate(const Unary& node) {
  const Value operand = evaluate(*node.operand);
  if (node.op == '!') return !is_true(operand);
  if (node.op == '-') return negative(operand);
  return arithmetic("+", 0, operand);
}

Value Evaluator::evaluate(const Binary& node) {
  const Value left = evaluate(*node.left);
  return arithmetic(node.op, left, evaluate(*node.right));
}

Value Evaluator::evaluate(const Logic& node) {
  Value left = evaluate(*node.left);
  return is_true(left) == node.is_and ? evaluate(*node.right) : left;
}

Value Evaluator::evaluate(const Compare& node) {
  const auto holds = [](const std::string& op, const Value& a, const Value& b) {
    if (op == "==") return equals(a, b);
    if (op == "!=") return !equals(a, b);
    if (op == "in") return contains(b, a);
    if (op == "not in") return !contains(b, a);
    if (op == "<") return less_than(a, b);
    if (op == ">") return less_than(b, a);
    if (op == "<=") return less_than(a, b) || equals(a, b);
    return less_than(b, a) || equals(a, b);
  };
  Value left = evaluate(*node.first);
  for (const auto& [op, part] : node.rest) {
    Value right = evaluate(*part);
    if (!holds(op, left, right)) return false;
    left = std::move(right);
  }
  return true;
}

Value Evaluator::evaluate(const Concat& node) {
  TracedText text;
  for (const auto& part : node.parts) text.print(evaluate(*part));
  return text.take();
}

Value Evaluator::evaluate(const Conditional& node) {
  if (is_true(evaluate(*node.condition))) return evaluate(*node.then);
  if (node.otherwise) return evaluate(*node.otherwise);
  return Undefined{"the inline if-expression evaluated to false and has no else"};
}

Value Evaluator::evaluate(const ListLiteral& node) {
  List items;
  for (const auto& item : node.items) items.push_back(evaluate(*item));
  return node.is_tuple ? Value::tuple(std::move(items)) : Value::list(std::move(items));
}

Value Evaluator::evaluate(const DictLiteral& node) {
  Dict entries;
  for (const auto& [key_part, value_part] : node.entries) {
    const Value key = evaluate(*key_part);
    if (key.is_dict() || key.is(Value::Kind::kList)) fail("unhashable type: '{}'", key.type_name());
    Value value = evaluate(*value_part);
    bool known = false;
    for (auto& entry : entries)
      if (equals(entry.first, key)) {
        entry.second = value;
        known = true;
      }
    if (!known) entries.emplace_back(key, std::move(value));
  }
  return Value::dict(std::move(entries));
}

}  // namespace temper::templates
