#pragma once
#include "foreign/matrix_writers.h"
#include "foreign/words/quantized_words.h"

namespace temper::foreign {

// How GPTQ's and AWQ's folders hold a matrix X.weight (foreign/words/quantized_words.h).
struct WordsForm {
  WordsIn codes_in = WordsIn::kDown, zeros_in = WordsIn::kAcross;
  int bits = 4;
  bool zeros_less_one = false;  // zeros are stored so: none is 0 then, which readers take in several ways
  bool symmetric = false;       // every zero is the middle of the codes
  int64_t group = 1;            // columns of a group; the last one may have fewer
  DType scales = DType::kF16;
};

// The form of the matrix `held` in a folder, without its values: symmetric where all its zeros are in the
// middle.
WordsForm words_form_of(const WordedMatrix& held, int64_t rows);

// Of a group the values from the least to the largest, and 0, or to the largest magnitude in both directions:
// its scale is rounded to the dtype of scales before the codes are found.
WritesMatrix words_writer(const QuantizedMatrix& matrix, const WordsForm& form);

}  // namespace temper::foreign
