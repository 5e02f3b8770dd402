#include "training/trainer.h"

#include "base/trace.h"
#include "training/flops.h"

namespace temper::training {

static_assert(data::kIgnore == ops::CrossEntropy::kIgnore,
              "data and loss must agree on positions without a target");

Trainer::Trainer(layers::Decoder& model, optimizers::AdamW& optimizer, const TrainerOptions& options)
    : model_(model), optimizer_(optimizer), options_(options) {}

PendingStep Trainer::begin(const std::vector<data::PackedRow>& rows, double lr) {
  const trace::Span span("step");
  PendingStep pending(rows, options_.num_sources);
  model_.parameters().reset_gradients();
  for (const auto& [begin, end] : cut_micro_batches(rows, options_.micro_batch_tokens)) {
    const MicroBatch batch = gather(rows, begin, end);
    Tape tape(TapeOptions{.rematerialize = options_.checkpointing == Checkpointing::kSelective});
    layers::Decoder::Options forward;
    forward.checkpoint_layers = options_.checkpointing == Checkpointing::kFull;
    const auto [loss, nll, z] = model_.loss(tape, model_.forward(tape, batch.input, forward), batch.targets,
                                            {pending.scale(), static_cast<float>(options_.z_loss)});
    pending.add_loss(loss.value, z, options_.num_sources > 1 ? nll : Tensor(), batch.documents);
    const trace::Span backward("backward");
    tape.backward(loss);
    pending.add_work(batch.tokens, training_flops(model_.config(), batch.lengths));
  }
  const trace::Span update("update");
  const Tensor norm = optimizer_.grad_norm();
  pending.set_grad_norm(norm);
  optimizer_.step(lr, norm, options_.max_grad_norm);
  return pending;
}

EvalResult Trainer::evaluate(const std::vector<data::PackedRow>& rows) const {
  return training::evaluate(model_, nullptr, rows, options_.micro_batch_tokens);
}

}  // namespace temper::training
