#pragma once
#include <string>
#include <string_view>

#include "collectives/group.h"

namespace temper::parallel {

// An Error on all ranks where one has another text than rank 0, which names those and, of lines, the first
// that differs: ranks that disagree would compute something else in silence, or wait for each other.
void check_same_on_all_ranks(collectives::Group& ranks, std::string_view what, const std::string& text);

// The same of the program itself.
void check_same_program(collectives::Group& ranks);

// An Error on all ranks where a rank on another host does not see what rank 0 writes into the folder. Without
// it such ranks would train, and could not resume.
void check_shared_folder(collectives::Group& ranks, const std::string& folder);

}  // namespace temper::parallel
