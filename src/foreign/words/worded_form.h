#pragma once
#include "foreign/words/words_writer.h"

namespace temper::foreign {

// A form whose matrices are X.qweight, X.qzeros and X.scales: integers in words of 32 bits.
class WordedForm : public QuantizedForm {
 public:
  Tensor rows(const ModelFolder& folder, const QuantizedMatrix& matrix, int64_t first,
              int64_t count) const override;
  WritesMatrix writer(const ModelFolder& folder, const QuantizedMatrix& matrix) const override;

 protected:
  // What files have of a matrix without misfits.
  virtual WordedMatrix held_in(const ModelFolder& folder, const QuantizedMatrix& matrix) const = 0;
  // Its three tensors, in groups of `group` columns; 0: one group of all.
  static WordedMatrix held_tensors(const ModelFolder& folder, const QuantizedMatrix& matrix, int64_t group);

  static constexpr std::string_view kCodes = ".qweight", kZeros = ".qzeros", kScales = ".scales";
  static constexpr std::string_view kFloats[] = {"F16", "BF16", "F32"}, kWords[] = {"I32"};
};

}  // namespace temper::foreign
