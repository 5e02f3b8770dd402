#pragma once
#include <initializer_list>
#include <string_view>
#include <utility>

#include "autograd/tape.h"

namespace temper::ops {

// Receives the results of ops that this thread runs, one by one. Without a listener an op only reads one
// variable.
class OpListener {
 public:
  virtual ~OpListener() = default;
  // A result of the op of that name with a row for each token that it was given, or rows_of_a_token() of
  // them, token by token. `weight`: the first parameter that it read; undefined: none.
  virtual void computed(std::string_view op, const Tensor& weight, const Tensor& result) = 0;

  // Listens until it ends, in place of who listened before.
  class Scope {
   public:
    explicit Scope(OpListener& listener) : before_(std::exchange(installed_, &listener)) {}
    ~Scope() { installed_ = before_; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    OpListener* before_;
  };

  // Ops of this thread have this number of rows for each token until it ends: one for each expert that is
  // chosen.
  class RowsOfTokens {
   public:
    explicit RowsOfTokens(int64_t rows) : before_(std::exchange(rows_of_a_token_, rows)) {}
    ~RowsOfTokens() { rows_of_a_token_ = before_; }
    RowsOfTokens(const RowsOfTokens&) = delete;
    RowsOfTokens& operator=(const RowsOfTokens&) = delete;

   private:
    int64_t before_;
  };
  static int64_t rows_of_a_token() { return rows_of_a_token_; }

  static void tell(std::string_view op, const Tensor& weight, const Tensor& result) {
    if (installed_ != nullptr) installed_->computed(op, weight, result);
  }

 private:
  static inline thread_local OpListener* installed_ = nullptr;
  static inline thread_local int64_t rows_of_a_token_ = 1;
};

// The front door of an op of a model's forward pass returns its result through one of these.
inline Var observed(std::string_view op, const Tensor& weight, Var result) {
  OpListener::tell(op, weight, result.value);
  return result;
}
inline Tensor observed(std::string_view op, const Tensor& weight, Tensor result) {
  OpListener::tell(op, weight, result);
  return result;
}
// Reports those of several results that are named.
template <class Results>
Results observed(std::string_view op, const Tensor& weight, Results results,
                 std::initializer_list<Var Results::*> named) {
  for (Var Results::*const each : named) OpListener::tell(op, weight, (results.*each).value);
  return results;
}

}  // namespace temper::ops
