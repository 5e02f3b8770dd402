#include "recipes/setup/quantizer_state.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "calibration/calibration.h"
#include "checkpoints/weights_sample.h"
#include "collectives/at_root.h"
#include "training/objectives/gather_rows.h"
#include "training/rounded_weights.h"

namespace temper::recipes {
namespace {

calibration::CalibrationOptions calibration_options(const RunConfig& config) {
  calibration::CalibrationOptions options{.method = config.quantize.method(),
                                          .micro_batch_tokens = config.train.compute.micro_batch_tokens};
  if (config.quantize.percentile) options.percentile = *config.quantize.percentile;
  if (config.quantize.smoothquant_alpha) options.alpha = *config.quantize.smoothquant_alpha;
  return options;
}

// "0.3 for 4, 0.5 for 2": how many weights took which.
std::string alphas_of(const std::vector<calibration::ChosenAlpha>& chosen) {
  std::map<float, int64_t> counts;
  for (const calibration::ChosenAlpha& each : chosen) ++counts[each.alpha];
  std::vector<std::string> lines;
  for (const auto& [alpha, count] : counts) lines.push_back(fmt::format("{:.1f} for {}", alpha, count));
  return join(lines);
}

std::vector<data::PackedRow> first_rows(const LearnerData& from, int64_t count) {
  const auto wanted = static_cast<size_t>(count);
  data::LoaderOptions options = loader_options(from.config);
  options.num_epochs = 1;
  data::Loader loader(from.data.train, options);
  std::vector<data::PackedRow> rows;
  while (rows.size() < wanted) {
    const std::optional<data::Batch> batch = loader.next();
    if (!batch) break;
    for (const data::PackedRow& row : batch->rows)
      if (rows.size() < wanted) rows.push_back(row);
  }
  return rows;
}

}  // namespace

std::vector<data::PackedRow> rows_to_calibrate(const std::vector<LearnerData>& all, int64_t count) {
  const int64_t each = (count + std::ssize(all) - 1) / std::ssize(all);
  std::vector<data::PackedRow> rows;
  for (const LearnerData& one : all)
    for (data::PackedRow& row : first_rows(one, each)) rows.push_back(std::move(row));
  return rows;
}

void calibrate_quantizers(layers::Decoder& model, const RunConfig& config, const ReadRows& read,
                          collectives::Group& ranks, collectives::Group& parts) {
  const quantizers::Quantizers& quantizers = model.quantizers();
  if (quantizers.empty()) return;
  const bool reads = calibration::needs_rows(quantizers);
  const std::vector<data::PackedRow> rows =
      reads ? training::shared_rows(ranks, parts, "rows of the calibration", read)
            : std::vector<data::PackedRow>();
  const calibration::Calibration found =
      calibration::calibrate(model, rows, calibration_options(config), parts, ranks);
  const int64_t count = parts.sum("rows of the calibration", static_cast<int64_t>(rows.size()));
  log_info(fmt::format(
      "quantizers: calibrated {} weights{}", found.weights,
      reads ? fmt::format(" and {} inputs on {} tokens in {} rows", found.inputs, found.tokens, count) : ""));
  if (!found.alphas.empty())
    log_info(fmt::format("quantizers: alpha of {} by weights: {}",
                         quantizers::name_of(config.quantize.method()), alphas_of(found.alphas)));
  for (const std::string& layer : found.idle_experts)
    log_warning(fmt::format(
        "[quantize.calibration_rows] {} had no token of the {} rows; their scales are those of their weights",
        layer, count));
}

checkpoints::OwnedTensors owned_quantizers(const quantizers::Quantizers& quantizers) {
  checkpoints::OwnedTensors owned;
  for (const quantizers::NamedScales& each : quantizers.state()) owned.add(each.name, each.values);
  return owned;
}

void check_calibrated_base(const checkpoints::StateReader& calibration, const std::string& folder) {
  if (calibration.json().at("base").as_string() != checkpoints::sample_of_weights(folder))
    fail(
        "[{}] was calibrated on other weights than {} holds now; give the base that the run started with, or "
        "another output",
        calibration.path(), folder);
}

void keep_calibration(const RunSetup& setup, const std::string& folder, const ReadRows& read) {
  layers::Decoder& model = setup.model->decoder;
  calibrate_quantizers(model, setup.config, read, setup.ranks, setup.groups->data());
  collectives::at_root(setup.ranks, "saving the calibration", [&] {
    checkpoints::StateWriter writer(folder, 0);
    writer.add_json("state.json",
                    Json::Object{{"base", checkpoints::sample_of_weights(setup.config.model.path)}});
    owned_quantizers(model.quantizers()).add_to(writer, kQuantizers, 0, 1);
    writer.commit();
  });
}

bool read_calibration(const RunSetup& setup, const std::string& folder) {
  quantizers::Quantizers& quantizers = setup.model->decoder.quantizers();
  if (quantizers.empty()) return false;
  const auto saved = checkpoints::open_newest(folder, setup.ranks);
  if (!saved) return false;
  check_calibrated_base(*saved, setup.config.model.path);
  read_quantizers(*saved, quantizers);
  log_info(fmt::format("quantizers: amax of the calibration in {}", folder));
  return true;
}

void quantize_base(const RunSetup& setup, const std::string& folder, const ReadRows& read) {
  layers::Decoder& model = setup.model->decoder;
  if (model.quantizers().empty()) return;
  if (!read_calibration(setup, folder)) keep_calibration(setup, folder, read);
  training::round_weights(model);
}

void read_quantizers(const checkpoints::StateReader& reader, quantizers::Quantizers& quantizers) {
  const std::vector<quantizers::NamedScales> state = quantizers.state();
  const std::string name = fmt::format("{}.safetensors", kQuantizers);
  if (!state.empty() || reader.has(name)) {
    const checkpoints::SafetensorsFile file = reader.tensors(name);
    for (const quantizers::NamedScales& each : state) {
      if (file.find(each.name) == nullptr)
        fail(
            "[{}] has no '{}': it is the checkpoint of another configuration of quantizers; write quantize "
            "as it was "
            "then, or train to another output",
            file.path(), each.name);
      const Tensor values = file.tensor(each.name);
      if (values.shape() != each.values.shape() || values.dtype() != DType::kF32)
        fail("[{}] '{}' is {} {}, expected float32 {}", file.path(), each.name, to_string(values.dtype()),
             to_string(values.shape()), to_string(each.values.shape()));
      each.values.copy_from(values);
    }
    for (const auto& entry : file.entries())
      if (std::none_of(state.begin(), state.end(),
                       [&](const quantizers::NamedScales& each) { return each.name == entry.name; }))
        fail(
            "[{}] has '{}', which no quantizer of this run reads; write quantize as it was then, or train to "
            "another output",
            file.path(), entry.name);
  }
  quantizers.take_own();
  quantizers.set_ready();
}

}  // namespace temper::recipes
