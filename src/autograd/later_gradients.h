#pragma once
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "autograd/grad_slot.h"

namespace temper {

// Gradients of parameters that the closures of a tape leave for later: its backward pass then forms the
// gradients of its inputs, and those of parameters that come with them. What is left holds what it needs, and
// the slots that it adds to.
class LaterGradients {
 public:
  // While one lives, closures that this thread runs leave what they can, also those of checkpoints.
  class Scope {
   public:
    explicit Scope(LaterGradients* later);  // which outlives it; null: nothing is left
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    LaterGradients* const outside_;
  };
  static LaterGradients* current();  // of this thread; null: nothing is left
  // For the gradient of the value with this slot, which may be null: null where closures of the tape read the
  // gradient, as of all that are not a parameter's.
  static LaterGradients* of(const std::shared_ptr<GradSlot>& slot) {
    return slot != nullptr && slot->persistent() ? current() : nullptr;
  }

  // In a recording of spans its time belongs to the span of the closure.
  void leave(std::function<void()> work);
  // Or computes it now where `later` is null.
  template <class Work>
  static void leave_or_compute(LaterGradients* later, Work&& work) {
    later == nullptr ? work() : later->leave(std::forward<Work>(work));
  }
  // In the order in which they were left. Each is freed when it is done; `after_each` is called then.
  void compute(const std::function<void()>& after_each = nullptr);

 private:
  std::vector<std::function<void()>> work_;
};

}  // namespace temper
