#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/shape.h"
#include "weights/layout.h"

// Which elements of a whole tensor a file of a state holds in a row, as its metadata say them by the tensor's
// name: {"shape":[768,256],"runs":[[0,128],[512,64,256,8]]}. A run is its first element of the whole, how
// many follow one another, and where they come again so far apart, how far and how often. Nothing in it
// depends on ranks.
namespace temper::checkpoints {

struct HeldElements {
  Shape whole;
  std::vector<Slice> runs;  // `own` counts the elements of the file's tensor
};

// Runs as long as the first one, each so far behind the one before: what a rank has of the columns of a
// matrix.
struct Columns {
  Slice first;
  int64_t distance = 0, times = 1;
};
// Runs are in the order of the file's tensor and leave no hole there, here and below.
std::vector<Columns> columns_of(std::span<const Slice> runs);

std::string format_elements(const Shape& whole, std::span<const Slice> runs);

// The reverse, for a file's tensor of `count` elements. An Error, without its place, for text that is not of
// this form, and for runs that are out of order, beyond the whole, or not as many elements as the tensor has.
HeldElements parse_elements(std::string_view text, int64_t count);

}  // namespace temper::checkpoints
