#pragma once
#include <string_view>

#include "primitives/nf4.h"

namespace temper::layers {

// A parameter that is kept in 4 bits: what a rank holds of its codes, and the magnitudes of the whole matrix.
class Nf4Weight {
 public:
  // Both must outlive it. Where the rank holds a flat part of the codes, all of them come and go.
  Nf4Weight(const WeightSpec& spec, const Placement& placement, bool double_quantization, Device device);

  const primitives::Nf4Matrix& matrix() const { return matrix_; }
  // Of codes that come and go: the part that stays, and the place of all of them.
  const Tensor& part() const { return part_; }
  void set_codes(const Tensor& codes) { matrix_.codes = codes; }

  // Some rows of the whole parameter, from `first` on. They are encoded as soon as all rows of one of the
  // parameter's sources are there, which must come from the first to the last.
  void set_rows(int64_t first, const Tensor& rows);
  // One of the sources, from its row `first` on (ParameterStore::set_nf4).
  void set_encoded(std::string_view name, int64_t first, const quant::Nf4& encoded);

 private:
  void set(const primitives::Nf4Part& here, const quant::Nf4& encoded);

  const WeightSpec* spec_;
  const Placement* placement_;
  Device device_;
  primitives::Nf4Matrix matrix_;
  Tensor part_;         // [held / 2] uint8; undefined: all are always there
  Tensor values_;       // [rows, columns] of the source whose rows are coming
  int64_t filled_ = 0;  // rows of it
};

// Of rows that are compact, from the parameter's own row `row` on, the elements that a part has, which begins
// with element `here` of all rows.
void set_part(const Tensor& part, int64_t here, int64_t row, const Tensor& rows);

}  // namespace temper::layers
