#include "templates/run/interpreter.h"

#include <algorithm>

#include "base/error.h"
#include "templates/run/globals.h"
#include "templates/values/limits.h"
#include "templates/values/loop.h"
#include "templates/values/operators.h"
#include "templates/values/print.h"

namespace temper::templates {
struct Interpreter::Callee {
  std::string name;
  const Signature* signature;
  const Block* body;
  Scope* around;
};

// Redirects output while it lives.
class Interpreter::Captured {
 public:
  explicit Captured(Interpreter& interpreter) : interpreter_(interpreter), before_(interpreter.output_) {
    interpreter_.output_ = &text_;
  }
  ~Captured() { interpreter_.output_ = before_; }
  Value take() { return text_.take(); }

 private:
  Interpreter& interpreter_;
  TracedText* before_;
  TracedText text_;
};

Interpreter::Interpreter(const Variables& variables) {
  scopes_.enter_for_good();
  add_globals(scopes_, namespaces_);
  scopes_.enter_for_good();
  for (const auto& [name, value] : variables) scopes_.set(name, value);
  scopes_.enter_for_good();
}

void Interpreter::run(const Block& block) { execute(block); }

void Interpreter::write(std::string_view text) {
  spend(text.size());
  output_->add(text);
}

void Interpreter::print(const Value& value) {
  const size_t before = output_->size();
  output_->print(value);
  spend(output_->size() - before);
}

Interpreter::Flow Interpreter::execute(const Block& block) {
  for (const auto& statement : block) {
    const Flow flow = execute(*statement);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::execute(const Statement& statement) {
  evaluator_.set_line(statement.line);
  const Evaluator::DepthScope deeper(evaluator_);
  spend();
  return std::visit([&](const auto& node) { return execute(node); }, statement.node);
}

Interpreter::Flow Interpreter::execute(const Text& node) {
  write(node.text);
  return Flow::kNext;
}

Interpreter::Flow Interpreter::execute(const Output& node) {
  print(evaluator_.evaluate(*node.value));
  return Flow::kNext;
}

Interpreter::Flow Interpreter::execute(const For& node) {
  return run_loop(node, items_of(evaluator_.evaluate(*node.items)), 0);
}

Interpreter::Flow Interpreter::run_loop(const For& node, List items, int64_t depth0) {
  LoopState::Again again;
  if (node.recursive) {
    again = [this, &node, around = scopes_.keep(), depth0](const Value& inner) {
      const Evaluator::DepthScope deeper(evaluator_);
      Captured captured(*this);
      const Scopes::Inside inside(scopes_, around);
      const int line = evaluator_.line();
      run_loop(node, items_of(inner), depth0 + 1);
      evaluator_.set_line(line);
      return captured.take();
    };
  }
  const Scopes::Inside inside(scopes_);
  // The filter sees the loop's names in a scope that the body does not see.
  LoopState::Filter filter;
  if (node.filter)
    filter = [this, &node, around = scopes_.now().parent](const Value& item) {
      const Scopes::Inside apart(scopes_, around);
      assign(node.target, item);
      return is_true(evaluator_.evaluate(*node.filter));
    };
  const auto loop =
      std::make_shared<LoopState>(std::move(items), std::move(filter), depth0, std::move(again));
  bool completed = false;  // an iteration, without break or continue: as Jinja, which then skips else
  Flow flow = Flow::kNext;
  while (flow != Flow::kBreak && loop->advance()) {
    spend();
    scopes_.now().names.clear();
    scopes_.set("loop", loop);
    assign(node.target, loop->current());
    flow = execute(node.body);
    completed |= flow == Flow::kNext;
  }
  loop->finish();
  scopes_.now().names.clear();
  return completed ? Flow::kNext : execute(node.otherwise);
}

Interpreter::Flow Interpreter::execute(const If& node) {
  for (const auto& [condition, body] : node.branches)
    if (is_true(evaluator_.evaluate(*condition))) return execute(body);
  return execute(node.otherwise);
}

Interpreter::Flow Interpreter::execute(const Set& node) {
  assign(node.target, evaluator_.evaluate(*node.value));
  return Flow::kNext;
}

void Interpreter::assign(const Target& target, const Value& value) {
  if (!target.parts.empty()) {
    const List items = items_of(value);
    if (items.size() != target.parts.size())
      fail("expected {} values to unpack, found {}", target.parts.size(), items.size());
    for (size_t i = 0; i < items.size(); ++i) assign(target.parts[i], items[i]);
    return;
  }
  if (target.attribute.empty()) return scopes_.set(target.name, value);
  const Value* names = scopes_.find(target.name);
  if (!names || !names->is(Value::Kind::kNamespace))
    fail("cannot assign attribute '{}' on '{}', which is not a namespace", target.attribute, target.name);
  for (auto& [name, slot] : names->names().entries)
    if (name == target.attribute) {
      slot = value;
      return;
    }
  names->names().entries.emplace_back(target.attribute, value);
}

Value Interpreter::capture(const Block& body) {
  Captured captured(*this);
  const Scopes::Inside inside(scopes_);
  execute(body);
  return captured.take();
}

Interpreter::Flow Interpreter::execute(const SetBlock& node) {
  const Value text = capture(node.body);
  assign(node.target, node.filter ? evaluator_.apply_to_text(*node.filter, text) : text);
  return Flow::kNext;
}

Interpreter::Flow Interpreter::execute(const FilterBlock& node) {
  const Value result = evaluator_.apply_to_text(*node.filter, capture(node.body));
  if (!result.is_string()) fail("a filter block must give a str, found {}", result.type_name());
  print(result);
  return Flow::kNext;
}

Interpreter::Flow Interpreter::execute(const Macro& node) {
  scopes_.set(node.name, make_macro(node.name, node.signature, node.body, false));
  return Flow::kNext;
}

Interpreter::Flow Interpreter::execute(const CallBlock& node) {
  const Value caller = make_macro("caller", node.signature, node.body, true);
  const int line = evaluator_.line();
  print(evaluator_.call(std::get<Call>(node.call->node), &caller));
  evaluator_.set_line(line);
  return Flow::kNext;
}

Value Interpreter::make_macro(const std::string& name, const Signature& signature, const Block& body,
                              bool anonymous) {
  const Callee callee{anonymous ? "caller" : name, &signature, &body, scopes_.keep()};
  return Function{name, [this, callee](const Arguments& arguments) { return call_macro(callee, arguments); }};
}

Value Interpreter::call_macro(const Callee& callee, const Arguments& arguments) {
  const Evaluator::DepthScope deeper(evaluator_);
  Captured captured(*this);
  const Scopes::Inside inside(scopes_, callee.around);
  const int line = evaluator_.line();
  bind(callee, arguments);
  execute(*callee.body);
  evaluator_.set_line(line);
  return captured.take();
}

void Interpreter::bind(const Callee& callee, const Arguments& arguments) {
  const Signature& signature = *callee.signature;
  const auto& names = signature.names;
  const size_t required = names.size() - signature.defaults.size();
  Dict named;
  for (const auto& [name, value] : arguments.named) named.emplace_back(name, value);
  const auto take_named = [&](std::string_view name) -> std::optional<Value> {
    const auto found = std::find_if(named.begin(), named.end(),
                                    [&](const auto& entry) { return entry.first.text() == name; });
    if (found == named.end()) return std::nullopt;
    Value value = found->second;
    named.erase(found);
    return value;
  };
  for (size_t i = 0; i < names.size(); ++i) {
    if (i < arguments.positional.size())
      scopes_.set(names[i], arguments.positional[i]);
    else if (auto value = take_named(names[i]))
      scopes_.set(names[i], *value);
    else if (i >= required)
      scopes_.set(names[i], evaluator_.evaluate(*signature.defaults[i - required]));
    else
      scopes_.set(names[i], Undefined{fmt::format("parameter '{}' was not provided", names[i])});
  }
  const bool has_caller = std::find(names.begin(), names.end(), "caller") != names.end();
  if (signature.uses_caller && !has_caller)
    scopes_.set("caller", take_named("caller").value_or(Undefined{"No caller defined"}));
  if (arguments.positional.size() > names.size() && !signature.uses_varargs)
    fail("macro '{}' takes not more than {} argument(s), found {}", callee.name, names.size(),
         arguments.positional.size());
  if (!named.empty() && !signature.uses_kwargs)
    fail("macro '{}' takes no keyword argument '{}'", callee.name, named[0].first.text());
  const size_t used = std::min(names.size(), arguments.positional.size());
  if (signature.uses_varargs)
    scopes_.set("varargs", Value::tuple({arguments.positional.begin() + static_cast<std::ptrdiff_t>(used),
                                         arguments.positional.end()}));
  if (signature.uses_kwargs) scopes_.set("kwargs", Value::dict(std::move(named)));
}

Interpreter::Flow Interpreter::execute(const With& node) {
  List values;
  for (const auto& entry : node.values) values.push_back(evaluator_.evaluate(*entry.second));
  const Scopes::Inside inside(scopes_);
  for (size_t i = 0; i < values.size(); ++i) assign(node.values[i].first, values[i]);
  return execute(node.body);
}

Interpreter::Flow Interpreter::execute(const Generation& node) {
  const bool placed = output_ == &main_output_;
  const size_t start = main_output_.size();
  print(capture(node.body));
  if (placed) generation_.emplace_back(start, main_output_.size());
  return Flow::kNext;
}

}  // namespace temper::templates
