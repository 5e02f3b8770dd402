#pragma once
#include <string_view>
#include <vector>

#include "weights/weight_table.h"

namespace temper::exchange {

// Where the elements of a tensor that is sent lie in the parameter: seen as [a, b, c, d], the tensor has
// the parameter's rows as [a, d, c, b]. All forms that files have of a parameter's rows
// (WeightSpec::transposed, transposed_rows, experts_in_files) are of this kind; most are of one block, b = c
// = 1, in one order.
struct ElementOrder {
  int64_t a = 1, b = 1, c = 1, d = 1;
  bool is_same() const { return c * d == 1 || (b == 1 && (c == 1 || d == 1)); }
};

// A tensor that may be sent: a parameter, or some rows of one by a name that files have.
struct Target {
  size_t parameter = 0;
  Shape shape;        // [of the tensor as it is sent]
  int64_t first = 0;  // element of the parameter
  ElementOrder order;
  bool stacked = false;  // files may have it in place of several (WeightSpec::stacked)
};

enum class Names { kCheckpoint, kPacked };  // those of a Hugging Face folder, or of this program

// All that the table knows, by name: keys live in the table.
std::vector<std::pair<std::string_view, Target>> targets_of(const WeightTable& table, Names names);

}  // namespace temper::exchange
