#pragma once
#include <string>

#include "formats/format.h"

namespace temper::formats {

// Rows made of packed files, in cache_folder()/data. A file's name there is the hash of what was converted,
// so that neither a name nor a date decides whether it is still right: opening reads several times as many
// bytes of rows anyway. The hash of the rows is in the name too, so that damage is seen when they are
// indexed.
struct CachedRows {
  std::string path;
  std::string hash;  // what the rows should have
};

// Converts when that has not been done. Only one process does, the others wait; one that is killed leaves a
// temporary file that the next conversion removes, as it does with rows that were not opened for 30 days.
// Errors: what the conversion finds wrong; a cache that cannot be written; too little space, before writing
// where it can be known.
CachedRows cached_rows(const std::string& path, const std::string& format, const Conversion& conversion);

std::string row_cache_folder();

}  // namespace temper::formats
