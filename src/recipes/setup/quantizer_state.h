#pragma once
#include "checkpoints/states/owned_tensors.h"
#include "data/loader.h"
#include "layers/decoder.h"
#include "recipes/setup/data_sets.h"
#include "recipes/setup/run_setup.h"

// The quantizers of a run: calibrated when it begins, read back when it resumes.
namespace temper::recipes {

// What a model, or one of several adapters, learns from.
struct LearnerData {
  const RunConfig& config;
  const DataSets& data;
};
// The first `count` rows that training on these data sees, or all there are; of several as many of each.
std::vector<data::PackedRow> rows_to_calibrate(const std::vector<LearnerData>& all, int64_t count);

// Finds every amax: of weights as they are, of inputs over the rows that `read` gives. Reports what it found;
// experts without tokens are named. All ranks call it; rank 0 reads the rows, of which each of `parts`
// computes some.
using ReadRows = std::function<std::vector<data::PackedRow>()>;
void calibrate_quantizers(layers::Decoder& model, const RunConfig& config, const ReadRows& read,
                          collectives::Group& ranks, collectives::Group& parts);

// The same of the run's model, kept in `folder`: it is what read_calibration() reads.
void keep_calibration(const RunSetup& setup, const std::string& folder, const ReadRows& read);
// False: there is none, or nothing is quantized. An Error where it was found with other weights.
bool read_calibration(const RunSetup& setup, const std::string& folder);

// Of a frozen base, once for all adapters of a run and whatever becomes of them: read from `folder`, or else
// found and kept there. The base's weights are rounded then.
void quantize_base(const RunSetup& setup, const std::string& folder, const ReadRows& read);

// An Error where the model in `folder` has other weights than this was found with.
void check_calibrated_base(const checkpoints::StateReader& calibration, const std::string& folder);

// What a checkpoint has of them: every amax and factor, by its name (quantizers::NamedScales), in files of
// this stem.
inline constexpr const char* kQuantizers = "quantizers";
checkpoints::OwnedTensors owned_quantizers(const quantizers::Quantizers& quantizers);
// The reverse. An Error names an amax that the checkpoint lacks, has in another shape, or has without a
// quantizer for it.
void read_quantizers(const checkpoints::StateReader& reader, quantizers::Quantizers& quantizers);

}  // namespace temper::recipes
