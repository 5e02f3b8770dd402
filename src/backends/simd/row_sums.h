#pragma once
#include "autograd/grad_slot.h"

namespace temper::backends {

// Sums over rows that are cut into pieces: each piece has a row of sums of its own, and the pieces are added
// in order. How many there are depends on the shape alone, so the sums are the same for any number of
// threads.
class RowSums {
 public:
  // `width` sums over `rows` rows of `row_size` elements; a width of 0: none are wanted, only the grain.
  RowSums(int64_t rows, int64_t row_size, int64_t width);
  int64_t grain() const { return grain_; }  // rows of a piece
  // For outlines: the floats that `width` sums take.
  static int64_t floats(int64_t rows, int64_t row_size, int64_t width);
  // The sums of the piece that begins there, set to 0; null when none are wanted.
  float* piece(int64_t begin) const;
  // Adds sums [first, first + the target's size) over all pieces to the target, if that is wanted.
  void add_to(const GradTarget& target, int64_t first) const;

 private:
  static int64_t grain_of(int64_t rows, int64_t row_size);

  int64_t width_, grain_, pieces_ = 0;
  Tensor partial_;  // [pieces, width] float32; undefined when none are wanted
};

}  // namespace temper::backends
