#pragma once
#include <functional>

namespace temper::training {

// What is called around the backward passes after which gradients are complete.
struct LastBackward {
  std::function<void()> begin;                 // before the first of them
  std::function<void()> after_each = nullptr;  // when a closure of theirs has run; null: not asked for
};

}  // namespace temper::training
