#pragma once
#include <functional>
#include <memory>
#include <optional>

#include "templates/values/value.h"

namespace temper::templates {

// The state of a for loop, and what `loop` in its body knows. The filter is asked as late as possible: the
// body may change what it looks at.
class LoopState : public std::enable_shared_from_this<LoopState> {
 public:
  using Filter = std::function<bool(const Value&)>;
  using Again = std::function<Value(const Value& items)>;  // runs the loop's body with other items
  LoopState(List items, Filter filter, int64_t depth0, Again again)
      : items_(std::move(items)), filter_(std::move(filter)), again_(std::move(again)), depth0_(depth0) {}

  bool advance();                                       // to the next item; false at the end
  void finish() { items_.clear(), filter_ = nullptr; }  // no more items: what the filter looks at is gone
  const Value& current() const { return current_; }
  int64_t index() const { return index0_ + 1; }
  int64_t length();
  Value call(const Arguments& arguments) const;  // of recursive loops
  Value attribute(std::string_view name);        // first, last, previtem, cycle, …

 private:
  std::optional<Value> next_from_items();
  bool peek();  // whether there is a next item, which then is in after_
  bool changed(const List& values);
  List items_;
  Filter filter_;
  Again again_;  // empty: not recursive
  int64_t depth0_;
  size_t at_ = 0;
  int64_t index0_ = -1;
  std::optional<int64_t> length_;
  std::optional<Value> after_;
  Value before_, current_;
  std::optional<List> last_changed_;
};

}  // namespace temper::templates
