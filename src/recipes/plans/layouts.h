#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "layers/decoder.h"
#include "recipes/keys/run_config.h"
#include "weights/mesh.h"

namespace temper::recipes {

// A way to divide the work of a run between its ranks: the keys of the group `parallel`.
struct RunLayout {
  Mesh mesh = {};  // of each stage
  int pipeline = 1, chunks = 1;

  int ranks() const { return mesh.size() * pipeline; }
};
std::string to_string(const RunLayout& layout);  // "shard 8, level 3, tensor 2, pipeline 2 x 4"
std::string flags_of(const RunLayout& layout);   // "--parallel.shard 8 --parallel.shard_level 3"
RunConfig with_layout(RunConfig config, const RunLayout& layout);

// All ways to divide a model's work between ranks that the program accepts (mesh.h). What the
// configuration names stays: degrees, stages and levels above 1, and the method of context parallelism.
struct RunLayouts {
  std::vector<RunLayout> possible;
  int64_t refused = 0;      // for the model or the run
  std::string why_refused;  // of the first of them
  int64_t idle = 0;         // possible ones in which ranks have no rows, as an update has fewer; left out
};
// `rows`: of an update.
RunLayouts layouts_of(int ranks, const layers::DecoderConfig& model, const RunConfig& config, int64_t rows);

}  // namespace temper::recipes
