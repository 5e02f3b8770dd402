#pragma once
#include <string>

#include "layers/adapted_rows.h"
#include "layers/binding.h"
#include "ops/dropout/dropout.h"
#include "ops/linear/linear.h"
#include "ops/lora_linear/lora_linear.h"

namespace temper::layers {

// y = x Wᵀ + b of a model: its weight, which may be in 8 bits, its bias, its kernels, and what the rows'
// adapters add: one matrix multiplication for all rows. Whatever changes what a linear reads or writes
// belongs here.
class Linear {
 public:
  Linear(const Binding& binding, const std::string& name, bool bias);

  // x [rows, in] to [rows, out]. `swiglu`: what may go along with the products; left alone where no kernel
  // takes it, or where adapters cut the rows.
  Var operator()(Tape& tape, const Var& x, const AdaptedRows& rows,
                 const ops::SwigluInProducts& swiglu = {}) const;

  // Some of the result's columns, [rows, columns.count]: the weight's rows of these alone are read, and get
  // gradients. For a linear of one module without a bias.
  struct Columns {
    int64_t first = 0, count = 0;
  };
  Var columns(Tape& tape, const Var& x, const AdaptedRows& rows, const Columns& wanted) const;

  const BoundWeight& weight() const { return weight_; }
  // What an adapter's A reads of x: its rows, some of whose elements are dropped while it trains.
  Var dropped(Tape& tape, const AdapterRows& rows, const Var& x) const;
  ops::Bound<ops::Linear> kernel() const { return linear_; }

 private:
  // Of several tensor ranks that give parts of a sum, the first adds the bias.
  Var bias(Tape& tape, const Var& whole) const;
  // `wanted`: null: all columns.
  Var run(Tape& tape, const AdaptedRows::Piece& piece, const ops::SwigluInProducts& swiglu,
          const Columns* wanted) const;

  BoundWeight weight_, bias_;
  Var multiply(Tape& tape, const Var& given, const AdaptedRows& rows, const ops::SwigluInProducts& swiglu,
               const Columns* wanted) const;

  std::shared_ptr<const quantizers::BoundQuantizer> input_, output_;  // null: what passes is not rounded
  ops::Bound<ops::Linear> linear_;
  ops::Bound<ops::LoraLinear> adapted_;
  ops::Bound<ops::Dropout> dropout_;
  Tensor no_bias_;            // zeros, where another rank adds it; undefined: it is added here
  int64_t columns_ = 0;       // of x on all tensor ranks
  int64_t first_column_ = 0;  // of those that are here
};

}  // namespace temper::layers
