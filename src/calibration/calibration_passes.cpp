#include "calibration/calibration_passes.h"

#include "training/passes/micro_batch.h"
#include "training/passes/staged_passes.h"

namespace temper::calibration {
namespace {

// Passes that round nothing, whatever happens in them.
class Observing {
 public:
  Observing(quantizers::Quantizers& quantizers, quantizers::Quantizers::Observer observer)
      : quantizers_(quantizers) {
    quantizers_.set_observer(std::move(observer));
    quantizers_.set_mode(quantizers::QuantizerMode::kObserve);
  }
  ~Observing() {
    quantizers_.set_mode(quantizers::QuantizerMode::kFake);
    quantizers_.set_tokens_count(true);
    quantizers_.set_observer({});
  }
  Observing(const Observing&) = delete;
  Observing& operator=(const Observing&) = delete;

 private:
  quantizers::Quantizers& quantizers_;
};

}  // namespace

Passed pass_unrounded(layers::Decoder& model, const std::vector<data::PackedRow>& rows,
                      int64_t micro_batch_tokens, collectives::Group& parts,
                      quantizers::Quantizers::Observer observer) {
  const Observing observing(model.quantizers(), std::move(observer));
  training::PendingLoads loads(model);
  Passed passed;
  std::vector<training::MicroBatch> batches;
  for (const auto& [begin, end] : training::cut_micro_batches(model, rows, micro_batch_tokens)) {
    batches.push_back(training::gather(rows, begin, end));
    passed.tokens += batches.back().tokens;
  }
  const auto pass = [&](Tape& tape, size_t index, const layers::Decoder::Part& part) {
    const training::MicroBatch& batch = batches[index];
    model.quantizers().set_tokens_count(batch.tokens > 0);
    layers::Decoder::Options forward;
    forward.routers = model.watch_routers();
    const Var made = model.forward(tape, batch.input, forward, part);
    if (forward.routers) loads.add(*forward.routers, 0);
    return made;
  };
  training::read_passes(model, batches.size(),
                        {pass, [&](size_t batch) { return model.make_part_input(batches[batch].input); }});
  if (model.num_routers() > 0) passed.loads = loads.wait(parts);
  // Of routers of other stages nothing was recorded here.
  if (const layers::ModelStages& stages = model.ranks().stages; stages.count() > 1)
    for (training::RouterLoad& load : passed.loads)
      stages.ranks->sum("tokens of experts", std::span<int64_t>(load.counts));
  return passed;
}

}  // namespace temper::calibration
