#include "foreign/words/worded_form.h"

namespace temper::foreign {

Tensor WordedForm::rows(const ModelFolder& folder, const QuantizedMatrix& matrix, int64_t first,
                        int64_t count) const {
  const WordedMatrix held = held_in(folder, matrix);
  Tensor read = decoded_rows(held, matrix.columns, first, count);
  folder.release(matrix.part(kCodes), held.codes);
  return read;
}

WritesMatrix WordedForm::writer(const ModelFolder& folder, const QuantizedMatrix& matrix) const {
  return words_writer(matrix, words_form_of(held_in(folder, matrix), matrix.rows));
}

WordedMatrix WordedForm::held_tensors(const ModelFolder& folder, const QuantizedMatrix& matrix,
                                      int64_t group) {
  WordedMatrix held{folder.tensor(matrix.part(kCodes)), folder.tensor(matrix.part(kZeros)),
                    folder.tensor(matrix.part(kScales))};
  held.group = group > 0 ? group : matrix.columns;
  return held;
}

}  // namespace temper::foreign
