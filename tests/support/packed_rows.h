#pragma once
#include <vector>

#include "data/rows/pack.h"

namespace temper {

// A row of documents of these lengths for the vocabulary of a TinyModel; every other token is a target.
inline data::PackedRow test_row(uint32_t seed, const std::vector<int64_t>& lengths) {
  data::PackedRow row;
  row.document_lengths = lengths;
  for (const int64_t length : lengths)
    for (int64_t i = 0; i < length; ++i) {
      seed = seed * 1664525 + 1013904223;
      row.ids.push_back(static_cast<int32_t>(seed >> 8) % 48);
      row.targets.push_back(i + 1 < length && i % 2 == 0 ? static_cast<int32_t>(seed >> 16) % 48
                                                         : data::kIgnore);
    }
  return row;
}

}  // namespace temper
