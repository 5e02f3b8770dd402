#include "templates/values/loop.h"

#include "base/error.h"
#include "templates/values/arguments.h"
#include "templates/values/operators.h"

namespace temper::templates {

std::optional<Value> LoopState::next_from_items() {
  while (at_ < items_.size()) {
    const Value& item = items_[at_++];
    if (!filter_ || filter_(item)) return item;
  }
  return std::nullopt;
}

bool LoopState::peek() {
  if (!after_) after_ = next_from_items();
  return after_.has_value();
}

bool LoopState::advance() {
  if (!peek()) return false;
  ++index0_;
  before_ = std::move(current_);
  current_ = *std::exchange(after_, std::nullopt);
  return true;
}

int64_t LoopState::length() {
  if (length_) return *length_;
  List rest;
  while (auto item = next_from_items()) rest.push_back(*item);
  items_ = std::move(rest);
  filter_ = nullptr;
  at_ = 0;
  length_ = static_cast<int64_t>(items_.size()) + index() + (after_ ? 1 : 0);
  return *length_;
}

bool LoopState::changed(const List& values) {
  const bool same = last_changed_ && equals(Value::list(*last_changed_), Value::list(values));
  last_changed_ = values;
  return !same;
}

Value LoopState::call(const Arguments& arguments) const {
  const Bound args(arguments, "loop", {"iterable"}, 1);
  if (!again_) fail("the loop must be marked 'recursive' to be called");
  return again_(args[0]);
}

Value LoopState::attribute(std::string_view name) {
  if (name == "index0") return index0_;
  if (name == "index") return index();
  if (name == "length") return length();
  if (name == "revindex") return length() - index0_;
  if (name == "revindex0") return length() - index();
  if (name == "first") return index0_ == 0;
  if (name == "last") return !peek();
  if (name == "previtem") return index0_ == 0 ? Value(Undefined{"there is no previous item"}) : before_;
  if (name == "nextitem") return peek() ? *after_ : Value(Undefined{"there is no next item"});
  if (name == "depth") return depth0_ + 1;
  if (name == "depth0") return depth0_;
  if (name == "cycle")
    return Function{"cycle", [self = shared_from_this()](const Arguments& arguments) {
                      if (arguments.positional.empty()) fail("no items for cycling given");
                      const auto count = static_cast<int64_t>(arguments.positional.size());
                      return arguments.positional[static_cast<size_t>(self->index0_ % count)];
                    }};
  if (name == "changed")
    return Function{"changed", [self = shared_from_this()](const Arguments& arguments) {
                      return Value(self->changed(arguments.positional));
                    }};
  return Undefined{fmt::format("'LoopContext' has no attribute '{}'", name)};
}

}  // namespace temper::templates
