#include "autograd/later_gradients.h"

#include "base/tracing/trace.h"

namespace temper {
namespace {

thread_local LaterGradients* in_scope = nullptr;

// Its operations are counted where it was left.
std::function<void()> traced(std::function<void()> work) {
  std::string name = trace::source().name;
  if (name.empty()) return work;
  return [name = std::move(name), work = std::move(work)] {
    const trace::Span span(name, [] { return trace::OpWork{}; });
    work();
  };
}

}  // namespace

LaterGradients::Scope::Scope(LaterGradients* later) : outside_(std::exchange(in_scope, later)) {}
LaterGradients::Scope::~Scope() { in_scope = outside_; }

LaterGradients* LaterGradients::current() { return in_scope; }

void LaterGradients::leave(std::function<void()> work) {
  work_.push_back(trace::on() ? traced(std::move(work)) : std::move(work));
}

void LaterGradients::compute(const std::function<void()>& after_each) {
  for (std::function<void()>& work : std::exchange(work_, {})) {
    std::exchange(work, nullptr)();
    if (after_each) after_each();
  }
}

}  // namespace temper
