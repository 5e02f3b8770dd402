#pragma once
#include "checkpoints/owned_tensors.h"
#include "data/loader.h"
#include "layers/decoder.h"
#include "recipes/data_sets.h"

// The quantizers of a run: calibrated when it begins, read back when it resumes.
namespace temper::recipes {

// Finds every amax: of weights as they are, of inputs over the first quantize.calibration_rows rows that
// training will see. Reports what it found; experts without tokens are named.
// All ranks call it; rank 0 reads the rows, of which each of `parts` computes some.
void calibrate_quantizers(layers::Decoder& model, const RunConfig& config, const DataSets& data,
                          collectives::Group& ranks, collectives::Group& parts);

// What a checkpoint has of them: every amax, by its name (layers::NamedAmax), in files of this stem.
inline constexpr const char* kQuantizers = "quantizers";
checkpoints::OwnedTensors owned_quantizers(const layers::Quantizers& quantizers);
// The reverse. An Error names an amax that the checkpoint lacks, has in another shape, or has without a
// quantizer for it.
void read_quantizers(const checkpoints::StateReader& reader, layers::Quantizers& quantizers);

}  // namespace temper::recipes
