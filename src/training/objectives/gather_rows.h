#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/group.h"
#include "data/rows/pack.h"

namespace temper::training {

// Rows as bytes that another rank reads.
std::string rows_to_bytes(const std::vector<data::PackedRow>& rows);
std::vector<data::PackedRow> rows_from_bytes(std::string_view bytes);

// Those of an update's rows that one of `ranks` ranks computes, in their order: the ranks' rows one after
// another are the update's, and the ranks have about equally many tokens. May be none.
std::vector<data::PackedRow> rows_of_rank(const std::vector<data::PackedRow>& rows, int rank, int ranks);

// Of the rows that rank 0 of `ranks` reads those of this rank, by its place among `parts`, which have rows of
// their own. All ranks call it; an Error of `read` is thrown on all of them.
std::vector<data::PackedRow> shared_rows(collectives::Group& ranks, const collectives::Group& parts,
                                         std::string_view name,
                                         const std::function<std::vector<data::PackedRow>()>& read);

// The rows of each rank, on all of them.
std::vector<std::vector<data::PackedRow>> gather_rows(collectives::Group& ranks,
                                                      const std::vector<data::PackedRow>& rows);

}  // namespace temper::training
