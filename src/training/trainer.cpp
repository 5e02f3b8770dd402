#include "training/trainer.h"

#include "base/tracing/trace.h"

namespace temper::training {

Trainer::Trainer(std::unique_ptr<Model> model, optimizers::AdamW& optimizer, const TrainerOptions& options,
                 const parallel::UpdateRanks& ranks)
    : model_(std::move(model)),
      optimizer_(optimizer),
      options_(options),
      ranks_(ranks),
      graphs_(model_->parameters().device(), options.cuda_graph, model_->why_not_captured(),
              [this](StepData& data) { compute(data); }) {}

Trainer::Trainer(layers::Decoder& model, optimizers::AdamW& optimizer, const TrainerOptions& options,
                 std::shared_ptr<const Objective> objective, const parallel::UpdateRanks& ranks)
    : Trainer(std::make_unique<CausalModel>(model, options, std::move(objective), ranks), optimizer, options,
              ranks) {}

// All that a device does in one step. What it depends on stands in `data` and on the device.
void Trainer::compute(StepData& data) {
  data.updates = false;
  model_->parameters().release_gradients();
  // With one micro-batch gradients move into the memory that backward frees; more of them need both at once.
  if (data.batches.size() > 1) model_->parameters().allocate_gradients();
  data.outputs.clear();
  model_->begin_passes(data);
  const TapeOptions of_tape = tape_options(options_);
  LastBackward sums{[this] { optimizer_.begin_sums(ranks_.tokens); }};
  if (!ranks_.tokens.is_alone()) sums.after_each = [this] { optimizer_.sum_ready(); };
  const bool staged = model_->pass_stages(data, of_tape, sums);
  for (size_t i = 0; i < data.batches.size() && !staged; ++i) {
    const bool last = i + 1 == data.batches.size();
    Tape tape(of_tape);
    const Var loss = [&] {
      const trace::Span forward("forward");
      return model_->loss(tape, data, i);
    }();
    const trace::Span backward("backward");
    if (last) sums.begin();
    tape.backward(loss, {}, last ? sums.after_each : nullptr);
  }
  const trace::Span update("update");
  if (data.batches.empty()) sums.begin();
  model_->end_passes();
  optimizer_.end_sums();
  data.grad_norm = optimizer_.grad_norm();
  data.updates = true;
  optimizer_.update(data.grad_norm, options_.max_grad_norm);
  model_->after_update(data);
}

PendingStep Trainer::begin(const std::vector<data::PackedRow>& rows, double lr) {
  const trace::Span span("step");
  PendingStep pending(rows, options_.num_sources, ranks_);
  model_->begin_step(rows, pending);
  StepData data;
  data.scale.set(pending.scale());
  data.inverse_tokens.set(pending.inverse_tokens());
  data.batches = model_->cut(rows, options_.micro_batch_tokens);
  double flops = 0;
  for (const MicroBatch& batch : data.batches) {
    const double of_batch = model_->training_flops(batch);
    pending.add_work(batch.tokens, of_batch);
    flops += of_batch;
  }
  optimizer_.set_lr(lr);
  const StepData& done = graphs_.run(std::move(data), flops);
  optimizer_.advance();
  model_->report(done, pending);
  pending.set_grad_norm(done.grad_norm);
  return pending;
}

}  // namespace temper::training
