#pragma once
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "templates/syntax/syntax.h"
#include "templates/values/arguments.h"
#include "templates/values/traced_text.h"

namespace temper::templates {

using Variables = std::vector<std::pair<std::string, Value>>;  // names and values

// The names of one block; lookups go on to the blocks around it.
struct Scope {
  Scope* parent = nullptr;
  bool kept = false;  // a macro refers to it
  Variables names;
  const Value* find(std::string_view name) const;
  void set(std::string_view name, Value value);
};

// Runs a parsed template once. Errors have no place; line() is where they happened.
class Interpreter {
 public:
  explicit Interpreter(const Variables& variables);
  void run(const Block& block);

  int line() const { return line_; }
  TracedText& output() { return main_output_; }
  std::vector<std::pair<size_t, size_t>>& generation() { return generation_; }

 private:
  enum class Flow { kNext, kBreak, kContinue };
  struct Callee;   // what a macro or call block needs when called
  class Deeper;    // counts levels of calls, statements and expressions
  class Captured;  // sends output to a text of its own

  // statements: interpreter.cpp
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
  void keep_scopes();
  Value call_macro(const Callee& callee, const Arguments& arguments);
  void bind(const Callee& callee, const Arguments& arguments);  // the macro's parameters, in its scope
  void write(std::string_view text);
  void print(const Value& value);
  class Inside;  // a scope entered and left

  // expressions: evaluate.cpp
  Value evaluate(const Expression& expression);
  Value evaluate(const Constant& node) { return node.value; }
  Value evaluate(const Name& node);
  Value evaluate(const Attribute& node);
  Value evaluate(const Item& node);
  Value evaluate(const Slice& node);
  Value evaluate(const Call& node);
  Value evaluate(const FilterCall& node);
  Value evaluate(const TestCall& node);
  Value evaluate(const Unary& node);
  Value evaluate(const Binary& node);
  Value evaluate(const Logic& node);
  Value evaluate(const Compare& node);
  Value evaluate(const Concat& node);
  Value evaluate(const Conditional& node);
  Value evaluate(const ListLiteral& node);
  Value evaluate(const DictLiteral& node);
  Value call(const Call& node, const Value* caller);
  Arguments evaluate_arguments(const CallArguments& node);
  Value apply_to_text(const Expression& filter, const Value& text);

  // functions: globals.cpp
  void add_globals();
  Value make_namespace(const Arguments& arguments);
  Value make_cycler(const Arguments& arguments);

  std::deque<Scope> scopes_;          // those that macros refer to live to the end
  std::deque<Namespace> namespaces_;  // likewise, as they may refer to each other
  Scope* scope_ = nullptr;
  TracedText main_output_;
  TracedText* output_ = &main_output_;
  std::vector<std::pair<size_t, size_t>> generation_;
  const Value* block_text_ = nullptr;  // the subject of a filter block's first filter
  int line_ = 1;
  int depth_ = 0;
};

class Interpreter::Deeper {
 public:
  explicit Deeper(Interpreter& interpreter);
  ~Deeper();

 private:
  int& depth_;
};

}  // namespace temper::templates
