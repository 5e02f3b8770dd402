#pragma once
#include <cstdint>
#include <string>

#include "models/export.h"

namespace temper::recipes {

struct Exported {
  int64_t quantizers = 0;
  int64_t step = 0;  // of the checkpoint that the amax were read from
};

// Writes the model that a quantized run left (OUTPUT/model) in the formats of its configuration, with the
// amax of its newest checkpoint (models/export.h); of a run of adapters the base that they were trained on.
// An Error names what the folder lacks.
Exported export_run(const std::string& run, const std::string& folder, models::ExportForm form);

}  // namespace temper::recipes
