#pragma once
#include <optional>
#include <span>

#include "foreign/forms.h"
#include "quant/element.h"

// What the forms of quantized folders share: where codes lie, and which scale belongs to an element.
namespace temper::foreign {

enum class CodesIn {
  kBytes,           // [rows, columns]: one in a byte
  kPairsOfColumns,  // U8 [rows, columns / 2]: the even column in the lower half
  kPairsOfRows,     // U8 [rows / 2, columns]: the even row in the lower half
  kWords,  // I32 [rows, columns · bits / 32, rounded up]: columns follow one another from the lowest bit on
};

// Of a matrix [rows, columns].
Shape codes_shape(CodesIn layout, int bits, int64_t rows, int64_t columns);

// value = (code - zero) · (scale · whole) · of_columns; each operation rounded to float32. Where there is
// `again`, what is multiplied by of_columns is rounded to E4M3 before: E4M3(what / again) · again.
struct CodedMatrix {
  Tensor codes;  // [rows, columns], as `layout` packs them
  CodesIn layout = CodesIn::kBytes;
  quant::Element element = {};
  bool offset = false;  // integers are stored with half of their codes added: 0 as 2^(bits - 1)
  Tensor scales;  // [row groups, column groups] float32, bfloat16, float16, E4M3; U8: powers 2^(code - 127)
  int64_t group_rows = 1, group_columns = 1;  // elements that share a scale; the last ones may be fewer
  float whole = 1;
  std::optional<float> again = {};
  Tensor zeros = {};              // float32, of the scales' shape; undefined: all are 0
  Tensor groups_of_columns = {};  // I32 [columns]: the column group of each; undefined: neighbours share one
  Tensor of_columns = {};         // float32 [columns]; undefined: all are 1
};

// Rows [first, first + count) in float32, [count, columns].
Tensor decoded_rows(const CodedMatrix& matrix, int64_t columns, int64_t first, int64_t count);

// A sentence where the folder has not this tensor in one of these dtypes (as the format of files spells them)
// and shapes; nothing where it has.
std::optional<std::string> misfit_of(const ModelFolder& folder, const std::string& name,
                                     std::span<const std::string_view> dtypes, std::span<const Shape> shapes);

// The same for tensors of one matrix, one after the other: sentences of all that do not fit.
class MatrixCheck {
 public:
  MatrixCheck(const ModelFolder& folder, const QuantizedMatrix& matrix) : folder_(folder), matrix_(matrix) {}
  // Whether the tensor with this ending fits, and all before it.
  bool operator()(std::string_view ending, std::span<const std::string_view> dtypes,
                  const std::vector<Shape>& shapes);
  std::vector<std::string> found;

 private:
  const ModelFolder& folder_;
  const QuantizedMatrix& matrix_;
};

// Those of the endings whose tensors the folder has, as names.
std::vector<std::string> parts_with(const ModelFolder& folder, const QuantizedMatrix& matrix,
                                    std::span<const std::string_view> endings);

// The one number of a tensor, in float32.
float number_in(const ModelFolder& folder, const std::string& name);
// Lets go of the pages of rows of codes.
void release_rows(const ModelFolder& folder, const std::string& name, const CodedMatrix& matrix,
                  int64_t first, int64_t count);

}  // namespace temper::foreign
