#pragma once
#include "data/rows/row.h"

namespace temper::data {

// Applies max_length as `options.overflow` says, and drops examples without a target; the row's status says
// what came of it. A preference is kept whole or not at all.
void fit(EncodedRow& row, const RowOptions& options);

}  // namespace temper::data
