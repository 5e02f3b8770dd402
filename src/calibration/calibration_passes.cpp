#include "calibration/calibration_passes.h"

#include "training/passes/micro_batch.h"

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
  for (const auto& [begin, end] : training::cut_micro_batches(model, rows, micro_batch_tokens)) {
    const training::MicroBatch batch = training::gather(rows, begin, end);
    model.quantizers().set_tokens_count(batch.tokens > 0);
    Tape tape(false);
    layers::Decoder::Options forward;
    forward.routers = model.watch_routers();
    model.forward(tape, batch.input, forward);
    if (forward.routers) loads.add(*forward.routers, 0);
    passed.tokens += batch.tokens;
  }
  if (model.num_routers() > 0) passed.loads = loads.wait(parts);
  return passed;
}

}  // namespace temper::calibration
