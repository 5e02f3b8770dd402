#pragma once
#include "data/rows/row.h"

namespace temper::data {

// Applies max_length as `options.overflow` says, and drops examples without a target; the row's status says
// what came of it. A preference is kept whole or not at all.
// No picture is cut, and none is left out of a row: where truncation would do so, and where a row with
// pictures would be split, it is too long. Splitting would train text without the picture that it is about.
void fit(EncodedRow& row, const RowOptions& options);

}  // namespace temper::data
