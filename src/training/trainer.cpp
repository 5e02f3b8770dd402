#include "training/trainer.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/trace.h"
#include "training/flops.h"

namespace temper::training {
namespace {

static_assert(data::kIgnore == ops::CrossEntropy::kIgnore,
              "data and loss must agree on positions without a target");

struct MicroBatch {
  layers::DecoderInput input;
  Tensor targets;
  std::vector<int32_t> lengths;
  std::vector<DocumentSpan> documents;
};

MicroBatch gather(const std::vector<data::PackedRow>& rows, size_t begin, size_t end) {
  std::vector<int32_t> ids, targets, lengths;
  std::vector<DocumentSpan> documents;
  for (size_t i = begin; i < end; ++i) {
    const data::PackedRow& row = rows[i];
    ids.insert(ids.end(), row.ids.begin(), row.ids.end());
    targets.insert(targets.end(), row.targets.begin(), row.targets.end());
    auto first = row.targets.begin();
    for (size_t d = 0; d < row.document_lengths.size(); ++d) {
      const int64_t length = row.document_lengths[d];
      lengths.push_back(static_cast<int32_t>(length));
      const int64_t ignored = std::count(first, first + length, data::kIgnore);
      documents.push_back({length, length - ignored, d < row.sources.size() ? row.sources[d] : 0});
      first += length;
    }
  }
  return {layers::make_input(ids, lengths), Tensor::from(targets), std::move(lengths), std::move(documents)};
}

std::shared_ptr<Reading> read(const Tensor& numbers) {
  return start_reading(numbers.raw(), numbers.device(), numbers.bytes());
}

// Adds up the losses of a micro-batch; tokens that are no targets have none.
void add_losses(std::vector<SourceLoss>& sources, const float* nll,
                const std::vector<DocumentSpan>& documents) {
  for (const DocumentSpan& document : documents) {
    const auto source = static_cast<size_t>(document.source);
    if (source >= sources.size()) sources.resize(source + 1);
    for (int64_t t = 0; t < document.length; ++t) sources[source].sum += nll[t];
    sources[source].target_tokens += document.target_tokens;
    nll += document.length;
  }
}

int64_t count_targets(const std::vector<data::PackedRow>& rows) {
  int64_t count = 0;
  for (const data::PackedRow& row : rows) count += row.num_targets();
  return count;
}

}  // namespace

std::vector<std::pair<size_t, size_t>> cut_micro_batches(const std::vector<data::PackedRow>& rows,
                                                         int64_t max_tokens) {
  std::vector<std::pair<size_t, size_t>> groups;
  int64_t tokens = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t length = rows[i].size();
    if (groups.empty() || (max_tokens > 0 && tokens + length > max_tokens)) {
      groups.emplace_back(i, i);
      tokens = 0;
    }
    groups.back().second = i + 1;
    tokens += length;
  }
  return groups;
}

Trainer::Trainer(layers::Decoder& model, optimizers::AdamW& optimizer, const TrainerOptions& options)
    : model_(model), optimizer_(optimizer), options_(options) {}

PendingStep Trainer::begin(const std::vector<data::PackedRow>& rows, double lr) {
  const trace::Span span("step");
  PendingStep pending;
  StepResult& known = pending.known_;
  known.target_tokens = count_targets(rows);
  if (options_.num_sources > 1) known.sources.resize(options_.num_sources);
  if (known.target_tokens == 0) fail("a step has no target token; check the data with 'temper data inspect'");
  const auto scale = static_cast<float>(1 / static_cast<double>(known.target_tokens));
  model_.parameters().reset_gradients();
  for (const auto& [begin, end] : cut_micro_batches(rows, options_.micro_batch_tokens)) {
    const MicroBatch batch = gather(rows, begin, end);
    Tape tape(TapeOptions{.rematerialize = options_.checkpointing == Checkpointing::kSelective});
    layers::Decoder::Options forward;
    forward.checkpoint_layers = options_.checkpointing == Checkpointing::kFull;
    const auto [loss, nll, z] = model_.loss(tape, model_.forward(tape, batch.input, forward), batch.targets,
                                            {scale, static_cast<float>(options_.z_loss)});
    pending.losses_.push_back(read(loss.value));
    if (z.defined()) pending.z_losses_.push_back(read(z));
    if (options_.num_sources > 1) pending.tokens_.emplace_back(read(nll), batch.documents);
    const trace::Span backward("backward");
    tape.backward(loss);
    known.tokens += batch.input.ids.numel();
    known.flops += training_flops(model_.config(), batch.lengths);
  }
  const trace::Span update("update");
  const Tensor norm = optimizer_.grad_norm();
  pending.grad_norm_ = read(norm);
  optimizer_.step(lr, norm, options_.max_grad_norm);
  return pending;
}

StepResult PendingStep::wait() {
  StepResult result = known_;
  for (const auto& loss : losses_) result.loss += *static_cast<const float*>(loss->wait());
  for (const auto& z : z_losses_) result.z_loss += *static_cast<const float*>(z->wait());
  result.loss -= result.z_loss;
  for (const auto& [nll, documents] : tokens_)
    add_losses(result.sources, static_cast<const float*>(nll->wait()), documents);
  result.grad_norm = *static_cast<const float*>(grad_norm_->wait());
  if (!std::isfinite(result.loss) || !std::isfinite(result.grad_norm))
    fail(
        "the loss is {} and the gradient norm {}: training diverged; lower the learning rate, lengthen the "
        "warm-up or continue from an earlier checkpoint",
        result.loss, result.grad_norm);
  return result;
}

EvalResult Trainer::evaluate(const std::vector<data::PackedRow>& rows) const {
  EvalResult result;
  double sum = 0;
  for (const auto& [begin, end] : cut_micro_batches(rows, options_.micro_batch_tokens)) {
    const MicroBatch batch = gather(rows, begin, end);
    Tape tape(false);
    const Var hidden = model_.forward(tape, batch.input);
    const Tensor nll = model_.loss(tape, hidden, batch.targets, {}).nll.on({});
    for (const float value : nll.values<float>()) sum += value;
    add_losses(result.sources, nll.data<float>(), batch.documents);
  }
  result.target_tokens = count_targets(rows);
  result.loss = result.target_tokens == 0 ? 0 : sum / static_cast<double>(result.target_tokens);
  return result;
}

}  // namespace temper::training
