#pragma once
#include "foreign/quantized_codes.h"

// What GPTQ's and AWQ's folders share. They hold the transpose of the matrix X.weight [rows, columns]:
// X.scales float [groups, rows], integers without a sign in words of 32 bits, X.qweight I32 of [columns,
// rows] and X.qzeros I32 of [groups, rows], and a group of columns shares a scale and a zero:
//   value = (code - zero) · scale
// Those are exact in float32 where scales are float16 or bfloat16.
namespace temper::foreign {

enum class WordsIn {
  kDown,      // one after the other down a column of the file, from the lowest bit on; they may cross words
  kAcross,    // the same along a row of the file
  kAwqAcross  // along a row of the file, eight of 4 bits in a word, in the order 0, 2, 4, 6, 1, 3, 5, 7
};

// Of integers [rows, columns] of the file.
Shape shape_in_words(WordsIn order, int bits, int64_t rows, int64_t columns);

// Of those integers (as words [.., ..] I32) the columns [first, first + count) as the rows of U8
// [count, rows], compact.
Tensor transposed_from_words(const Tensor& words, WordsIn order, int bits, int64_t rows, int64_t first,
                             int64_t count);

// The reverse of the whole: integers U8 [rows, columns] of the file as words.
Tensor words_from(const Tensor& integers, WordsIn order, int bits);

struct WordedMatrix {
  Tensor codes;   // words [.., ..] of [columns, rows]
  Tensor zeros;   // words [.., ..] of [groups, rows]
  Tensor scales;  // [groups, rows]
  WordsIn codes_in = WordsIn::kDown, zeros_in = WordsIn::kAcross;
  int bits = 4;
  bool zeros_less_one = false;  // zeros are stored so; borrows go from each to the next in its word
  int64_t group = 1;            // columns of a group; the last one may have fewer
  Tensor groups = {};           // I32 [columns]: the group of each; undefined: neighbours share one
};

// Of rows [first, first + count) the zeros, float32 [count, groups], and the values, float32 [count,
// columns].
Tensor zeros_in(const WordedMatrix& matrix, int64_t first, int64_t count);
Tensor decoded_rows(const WordedMatrix& matrix, int64_t columns, int64_t first, int64_t count);

// The key of a configuration that has one of two names; null: neither is there, or it is null.
const Json* one_of(const Json& config, std::string_view key, std::string_view other);
// "bits" or "w_bit", "group_size" or "q_group_size", which is 0 for whole columns (-1 in files). Errors
// "[where] …".
int bits_of_config(const Json& config, std::span<const int> known, const std::string& where);
int64_t group_of_config(const Json& config, const std::string& where);

}  // namespace temper::foreign
