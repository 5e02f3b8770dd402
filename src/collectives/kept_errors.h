#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "collectives/at_root.h"

namespace temper::collectives {

// Errors that a rank meets with while the others go on. They wait for a meeting that all ranks have anyway,
// and are thrown on all of them there: work that one rank does by itself ends a run in step, so that it can
// still save the trained weights, with the Error itself and its exit code. A single rank throws at once.
class KeptErrors {
 public:
  explicit KeptErrors(Group& group) : group_(group) {}

  // Does it, and keeps an Error; nothing is done behind one.
  void attempt(const std::function<void()>& act);
  // The same on rank 0 alone.
  void at_root(const std::function<void(const Root&)>& act);

  bool any() const { return first_.has_value(); }  // of this rank
  // All ranks call it, where any() is true of one of them or not: throws the lowest rank's as an ErrorOfAll.
  void raise(std::string_view name);

 private:
  Group& group_;
  std::optional<Error> first_;
};

// What rank 0 alone has, such as an open file: empty on the other ranks.
template <class T>
class OfRoot {
 public:
  template <class... Args>
  void emplace(const Root&, Args&&... args) {
    value_ = std::make_unique<T>(std::forward<Args>(args)...);
  }
  T& get(const Root&) { return *value_; }

 private:
  std::unique_ptr<T> value_;
};

}  // namespace temper::collectives
