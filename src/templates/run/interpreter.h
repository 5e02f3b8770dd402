#pragma once
#include <deque>
#include <string_view>
#include <utility>
#include <vector>

#include "templates/run/evaluator.h"
#include "templates/run/scopes.h"
#include "templates/syntax/syntax.h"
#include "templates/values/arguments.h"
#include "templates/values/traced_text.h"

namespace temper::templates {

// Runs a parsed template once. Errors have no place; line() is where they happened.
class Interpreter {
 public:
  explicit Interpreter(const Variables& variables);
  void run(const Block& block);

  int line() const { return evaluator_.line(); }
  TracedText& output() { return main_output_; }
  std::vector<std::pair<size_t, size_t>>& generation() { return generation_; }

 private:
  enum class Flow { kNext, kBreak, kContinue };
  struct Callee;   // what a macro or call block needs when called
  class Captured;  // sends output to a text of its own

  Flow execute(const Block& block);
  Flow execute(const Statement& statement);
  Flow execute(const Text& node);
  Flow execute(const Output& node);
  Flow execute(const For& node);
  Flow run_loop(const For& node, List items, int64_t depth0);
  Flow execute(const If& node);
  Flow execute(const Set& node);
  Flow execute(const SetBlock& node);
  Flow execute(const Macro& node);
  Flow execute(const CallBlock& node);
  Flow execute(const FilterBlock& node);
  Flow execute(const With& node);
  Flow execute(const Generation& node);
  Flow execute(const Break&) { return Flow::kBreak; }
  Flow execute(const Continue&) { return Flow::kContinue; }
  void assign(const Target& target, const Value& value);
  Value capture(const Block& body);  // in a scope of its own
  Value make_macro(const std::string& name, const Signature& signature, const Block& body, bool anonymous);
  Value call_macro(const Callee& callee, const Arguments& arguments);
  void bind(const Callee& callee, const Arguments& arguments);  // the macro's parameters, in its scope
  void write(std::string_view text);
  void print(const Value& value);

  Scopes scopes_;
  Evaluator evaluator_{scopes_};
  std::deque<Namespace> namespaces_;  // live to the end, as they may refer to each other
  TracedText main_output_;
  TracedText* output_ = &main_output_;
  std::vector<std::pair<size_t, size_t>> generation_;
};

}  // namespace temper::templates
