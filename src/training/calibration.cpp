#include "training/calibration.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "primitives/amax.h"
#include "training/micro_batch.h"
#include "training/router_loads.h"

namespace temper::training {
namespace {

using layers::Quantizer;
using layers::Quantizers;

bool is_calibrated_input(const Quantizer& each) { return each.planned.of_input && each.planned.keeps_amax(); }

void check_finite(const Quantizer& each) {
  const Tensor here = each.amax.on({});
  for (const float amax : here.values<float>())
    if (!std::isfinite(amax))
      fail("[quantize] {} found an amax of {}: {} values that are no finite numbers", each.planned.name, amax,
           each.planned.of_input ? "the module's input has" : "the weight has");
}

void calibrate_weight(Quantizer& each, const layers::ParameterStore& parameters) {
  const Tensor values = parameters.value(each.planned.weight).contiguous();
  each.amax.fill_zero();
  primitives::grow_amax(values.reshape(each.planned.values), each.amax);
  check_finite(each);
}

// Experts by layer that had no token, where their weights are quantized.
std::vector<std::string> idle_experts(const Quantizers& quantizers, const std::vector<RouterLoad>& loads) {
  std::vector<std::string> idle;
  for (const RouterLoad& load : loads) {
    const std::string layer = fmt::format("layers.{}.", load.layer);
    const auto found =
        std::find_if(quantizers.all().begin(), quantizers.all().end(), [&](const Quantizer& each) {
          return each.planned.experts > 0 && each.planned.name.starts_with(layer);
        });
    if (found == quantizers.all().end() || load.idle() == 0) continue;
    std::vector<std::string> experts;
    for (size_t e = 0; e < load.counts.size(); ++e)
      if (load.counts[e] == 0) experts.push_back(fmt::format("{}", e));
    const std::string& name = found->planned.name;
    idle.push_back(fmt::format("{}: experts {}", name.substr(0, name.find(".experts")), join(experts)));
  }
  return idle;
}

// Of the ranks' amax of an input; NaN stays.
void take_largest(Quantizer& each, collectives::Group& ranks) {
  if (ranks.is_alone()) return;
  each.observed = ranks.sum("ranks that saw values", each.observed ? 1 : 0) > 0;
  const Tensor here = each.amax.on({});
  const auto own = here.values<float>();
  for (const std::vector<float>& other : ranks.gather("amax of an input", std::span<const float>(own)))
    for (size_t i = 0; i < own.size(); ++i)
      own[i] = other[i] > own[i] || other[i] != other[i] ? other[i] : own[i];
  if (each.amax.device() != here.device()) each.amax.copy_from(here);
}

// Passes that round nothing, whatever happens in them.
class Observing {
 public:
  explicit Observing(Quantizers& quantizers) : quantizers_(quantizers) {
    quantizers_.set_mode(layers::QuantizerMode::kObserve);
  }
  ~Observing() { quantizers_.set_mode(layers::QuantizerMode::kFake); }
  Observing(const Observing&) = delete;
  Observing& operator=(const Observing&) = delete;

 private:
  Quantizers& quantizers_;
};

void observe(layers::Decoder& model, const std::vector<data::PackedRow>& rows, int64_t micro_batch_tokens,
             collectives::Group& ranks, Calibration& calibration) {
  const Observing observing(model.quantizers());
  PendingLoads loads(model);
  for (const auto& [begin, end] : cut_micro_batches(rows, micro_batch_tokens)) {
    const MicroBatch batch = gather(rows, begin, end);
    Tape tape(false);
    layers::Decoder::Options forward;
    forward.routers = model.watch_routers();
    model.forward(tape, batch.input, forward);
    if (forward.routers) loads.add(*forward.routers, 0);
    calibration.tokens += batch.tokens;
  }
  if (model.num_routers() > 0) calibration.idle_experts = idle_experts(model.quantizers(), loads.wait(ranks));
  calibration.tokens = ranks.sum("tokens of the calibration", calibration.tokens);
  for (Quantizer& each : model.quantizers().all())
    if (is_calibrated_input(each)) take_largest(each, ranks);
}

}  // namespace

bool needs_rows(const Quantizers& quantizers) {
  return std::any_of(quantizers.all().begin(), quantizers.all().end(), is_calibrated_input);
}

Calibration calibrate(layers::Decoder& model, const std::vector<data::PackedRow>& rows,
                      int64_t micro_batch_tokens, collectives::Group& ranks) {
  Quantizers& quantizers = model.quantizers();
  Calibration calibration;
  for (Quantizer& each : quantizers.all()) {
    if (!each.planned.keeps_amax()) continue;
    if (each.planned.of_input) {
      each.amax.fill_zero();
      each.observed = false;
    } else {
      calibrate_weight(each, model.parameters());
      calibration.weights += quantizers.plan().find(each.planned.name)->count;
    }
  }
  if (needs_rows(quantizers)) observe(model, rows, micro_batch_tokens, ranks, calibration);
  for (const Quantizer& each : quantizers.all()) {
    if (!is_calibrated_input(each)) continue;
    if (!each.observed)
      fail("[quantize] {} saw no values while it was calibrated; give it more rows", each.planned.name);
    check_finite(each);
    ++calibration.inputs;
  }
  quantizers.set_ready();
  return calibration;
}

}  // namespace temper::training
