#pragma once
#include <string>

#include "recipes/setup/run_setup.h"

namespace temper::recipes {

// What decides, besides the trained weights and the keys of the configuration, what training means: by file,
// its hash, or of the model's config.json the keys that count.
Json origin_of(const RunSetup& setup);

// What of `file` is not as a run had it when its state was written: "" for nothing, otherwise a part of a
// sentence that names it, with the keys that differ where they are known. Both are values of origin_of(); in
// states of older versions `was` is a config.json's hash.
std::string difference_of_origin(const std::string& file, const Json& was, const Json& is);

}  // namespace temper::recipes
