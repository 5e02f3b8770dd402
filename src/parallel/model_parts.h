#pragma once
#include <vector>

#include "layers/decoder.h"
#include "parallel/pipeline/layer_parts.h"
#include "parallel/pipeline/timeline.h"

namespace temper::parallel {

// The layers of a model in parts of about equal cost of a pass (divide_layers), `chunks` for each of the
// ranks' stages; the first has the embedding in addition, the last one the head. Of one stage the ranks as
// they are. `device`: of the ranks.
//
// An Error where there are more parts than layers, which says how many fit.
layers::ModelRanks with_parts(layers::ModelRanks ranks, const layers::DecoderConfig& model, int chunks = 1,
                              Device device = {});

// The layers that a stage has, part by part. Of one stage none: it has all of them.
std::vector<LayerRange> layers_of_stage(const layers::ModelStages& stages, int stage);

// The first part of the layers of which an adapter trains something, the same on all stages.
int first_trained_part(const layers::Adapter& adapter, const layers::ModelStages& stages);

// What is trained, and what of it is computed twice.
struct PassKind {
  bool frozen = false;  // adapters alone: their matrices are narrow, and cost next to nothing
  bool again = false;   // backward passes compute layers again
};

// What the passes of each part cost on this device, in order (with_parts), per pass over a document of a
// usual length: as many floating-point operations of the head as take the same time. The loss is formed
// together with its gradients in the last part's forward pass. Transfers take no time.
PipelineCosts pipeline_costs(const layers::DecoderConfig& model, int stages, int chunks,
                             const PassKind& passes, Device device = {});

}  // namespace temper::parallel
