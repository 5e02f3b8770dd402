#pragma once
#include <utility>

#include "templates/run/scopes.h"
#include "templates/syntax/syntax.h"
#include "templates/values/arguments.h"

namespace temper::templates {

// Values of expressions, by the names of the scope at hand. Errors have no place; line() is where they
// happened.
class Evaluator {
 public:
  explicit Evaluator(Scopes& scopes) : scopes_(scopes) {}

  Value evaluate(const Expression& expression);
  // `caller`: the macro of a call block, or null.
  Value call(const Call& node, const Value* caller);
  // A chain of filters, whose first one's subject is the text of a block.
  Value apply_to_text(const Expression& filter, const Value& text);

  int line() const { return line_; }
  void set_line(int line) { line_ = line; }

  // Counts levels of calls, statements and expressions.
  class DepthScope {
   public:
    explicit DepthScope(Evaluator& evaluator);
    ~DepthScope();

   private:
    int& depth_;
  };

 private:
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
  Arguments evaluate_arguments(const CallArguments& node);

  Scopes& scopes_;
  const Value* block_text_ = nullptr;  // the subject of a filter block's first filter
  int line_ = 1;
  int depth_ = 0;
};

}  // namespace temper::templates
