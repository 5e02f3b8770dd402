#include "training/causal_model.h"

#include "layers/glue.h"
#include "ops/adamw/adamw.h"
#include "ops/global_norm/global_norm.h"
#include "primitives/expert_counts.h"
#include "training/passes/flops.h"
#include "training/passes/staged_passes.h"

namespace temper::training {

static_assert(data::kIgnore == ops::CrossEntropy::kIgnore,
              "data and loss must agree on positions without a target");

CausalModel::CausalModel(layers::Decoder& decoder, const TrainerOptions& options,
                         std::shared_ptr<const Objective> objective, const parallel::UpdateRanks& ranks)
    : decoder_(decoder),
      options_(options),
      objective_(std::move(objective)),
      ranks_(ranks),
      stage_costs_(stage_costs(decoder, options, false)) {}

std::string CausalModel::why_not_captured() const {
  if (objective_) return "the objective needs the CPU in every step";
  if (!ranks_.results.is_alone() || decoder_.ranks().mesh.size() > 1)
    return "the ranks wait for each other in every step";
  if (!is_apart(decoder_.device())) return "there are no graphs on the CPU";
  const auto because = [](std::string_view op) {
    return fmt::format("the kernel of {} needs the CPU in every step (docs/training.md)", op);
  };
  if (!decoder_.ops().at<ops::AdamW>("optimizer").repeats) return because(ops::AdamW::kName);
  if (!decoder_.ops().at<ops::GlobalNorm>("optimizer").repeats) return because(ops::GlobalNorm::kName);
  const std::string_view op = decoder_.asks_host();
  return op.empty() ? std::string() : because(op);
}

std::vector<MicroBatch> CausalModel::cut(const std::vector<data::PackedRow>& rows, int64_t max_tokens) const {
  std::vector<MicroBatch> batches;
  for (const auto& [begin, end] : cut_micro_batches(decoder_, rows, max_tokens))
    batches.push_back(gather(rows, begin, end, form_of(decoder_)));
  return batches;
}

double CausalModel::training_flops(const MicroBatch& batch) const {
  return training::training_flops(decoder_.config(), batch.documents);
}

void CausalModel::begin_step(const std::vector<data::PackedRow>& rows, PendingStep& pending) {
  if (objective_) {
    step_loss_ = objective_->begin(rows, nullptr, ranks_.rows);
    pending_ = &pending;
  }
  pending.watch_routers(decoder_);
}

void CausalModel::begin_passes(const StepData& data) {
  counts_.clear();  // of a step that did not end
  counts_ = known_counts(data);
}

Var CausalModel::loss(Tape& tape, StepData& data, size_t batch) { return pass(tape, data, batch, {}); }

bool CausalModel::pass_stages(StepData& data, const TapeOptions& tape, const LastBackward& last) {
  if (stages().count() == 1 || data.batches.empty()) return false;
  StagedPasses passes(stages(), decoder_.device(), tape,
                      {[&](Tape& own, size_t batch, const layers::Decoder::Part& part) {
                         return pass(own, data, batch, part);
                       },
                       [&](size_t batch) { return decoder_.make_part_input(data.batches[batch].input); }});
  data.stage_times = passes.train(data.batches.size(), {options_.pipeline, stage_costs_}, last);
  return true;
}

Var CausalModel::pass(Tape& tape, StepData& data, size_t batch, const layers::Decoder::Part& part) {
  const MicroBatch& rows = data.batches[batch];
  layers::Decoder::Options forward;
  forward.checkpoint_layers = options_.checkpointing == Checkpointing::kFull;
  forward.routers = watch_routers(decoder_, rows);
  // The hidden states are not kept while backward runs.
  Var made = decoder_.forward(tape, rows.input, forward, part);
  if (part.index + 1 == stages().num_parts())
    made = loss_of(tape, made, batch, data);
  else if (forward.routers != nullptr)
    data.outputs.push_back({{}, {}, {}, {}, {}, batch});
  return with_balance(tape, made, forward.routers, batch, data);
}

Var CausalModel::loss_of(Tape& tape, const Var& hidden, size_t batch, StepData& data) {
  const MicroBatch& rows = data.batches[batch];
  if (step_loss_) {
    if (decoder_.num_routers() > 0)
      data.outputs.push_back({{}, {}, {}, {}, {}, batch});  // it reports its loss itself
    return step_loss_->of(tape, {hidden, rows.targets, rows.documents, rows.input.cut}, *pending_);
  }
  const auto [loss, nll, z] =
      decoder_.loss(tape, hidden, rows.own_targets(), {data.scale, static_cast<float>(options_.z_loss)});
  data.outputs.push_back({loss.value, options_.num_sources > 1 ? nll : Tensor(), z, {}, {}, batch});
  return loss;
}

// Of several ranks the hosts add up what all know.
std::vector<Tensor> CausalModel::summed_counts(
    const std::vector<std::shared_ptr<layers::RouterTrace>>& passes) const {
  std::vector<Tensor> counts;
  if (ranks_.results.is_alone()) {
    for (size_t i = 0; i < decoder_.num_routers(); ++i) {
      const auto chosen = [&](size_t pass) { return passes[pass]->routers[i].parts[0].counts; };
      counts.push_back(passes.size() == 1 ? chosen(0) : chosen(0).clone());
      for (size_t pass = 1; pass < passes.size(); ++pass) primitives::add_counts(counts[i], chosen(pass));
    }
    return counts;
  }
  PendingLoads loads(decoder_);
  for (const auto& pass : passes) loads.add(*pass, 0);
  for (const RouterLoad& load : loads.wait(ranks_.results)) {
    std::vector<int32_t> own(load.counts.begin(), load.counts.end());
    own.push_back(0);
    counts.push_back(Tensor::from(own).on(decoder_.device()));
  }
  return counts;
}

// A pass of its own where the update has several micro-batches or ranks and is balanced as a whole, or where
// stages have some of the routers each.
std::vector<std::vector<Tensor>> CausalModel::known_counts(const StepData& data) const {
  const RouterOptions& options = options_.routers;
  if (decoder_.num_routers() == 0 || options.balance_factor == 0) return {};
  if (stages().count() == 1 &&
      (!options.global_balance || (data.batches.size() < 2 && ranks_.results.is_alone())))
    return {};
  std::vector<StagedTraces> batches(data.batches.size());
  const auto read = [&](Tape& tape, size_t batch, const layers::Decoder::Part& part) {
    layers::Decoder::Options forward;
    forward.routers = watch_routers(decoder_, data.batches[batch]);
    batches[batch].passes.push_back(forward.routers);
    return decoder_.forward(tape, data.batches[batch].input, forward, part);
  };
  read_passes(decoder_, data.batches.size(),
              {read, [&](size_t batch) { return decoder_.make_part_input(data.batches[batch].input); }});
  std::vector<std::vector<Tensor>> counts;
  if (options.global_balance) {
    std::vector<std::shared_ptr<layers::RouterTrace>> all;
    for (const StagedTraces& batch : batches) all.insert(all.end(), batch.passes.begin(), batch.passes.end());
    counts.push_back(summed_counts(all));
  } else {
    for (auto& of_batch : counts_of_stages(decoder_, batches)) counts.push_back(std::move(of_batch.front()));
  }
  return counts;
}

std::vector<Tensor> CausalModel::counts_of(const layers::RouterTrace& routers, size_t batch) const {
  if (counts_.empty()) return counts_of_context(decoder_, routers, 0);
  return options_.routers.global_balance ? counts_.front() : counts_[batch];
}

Var CausalModel::with_balance(Tape& tape, const Var& loss,
                              const std::shared_ptr<layers::RouterTrace>& routers, size_t batch,
                              StepData& data) const {
  if (routers == nullptr) return loss;
  StepData::Output& output = data.outputs.back();
  output.routers = routers;
  const double factor = options_.routers.balance_factor;
  if (factor == 0) return loss;
  const Var balance = decoder_.balance().loss(
      tape, *routers, 0, {static_cast<float>(factor), data.inverse_tokens, counts_of(*routers, batch)});
  if (!balance.value.defined()) return loss;  // no router is here
  output.balance = balance.value;
  return loss.shape().ndim() == 1 ? layers::add_losses(tape, {loss, balance})
                                  : layers::with_loss(tape, loss, balance);
}

void CausalModel::after_update(StepData& data) {
  if (options_.routers.bias_rate > 0) move_biases(data);
  counts_.clear();
}

// By what all ranks' tokens of the update chose; evaluation and passes that are computed again count nothing.
void CausalModel::move_biases(const StepData& data) {
  std::vector<std::shared_ptr<layers::RouterTrace>> passes;
  for (const StepData::Output& output : data.outputs)
    if (output.routers) passes.push_back(output.routers);
  const std::vector<Tensor> counts = summed_counts(passes);
  const auto rate = static_cast<float>(options_.routers.bias_rate);
  for (size_t i = 0; i < counts.size(); ++i)
    if (const layers::BoundWeight* const bias = decoder_.choice_bias(decoder_.router_layers()[i]))
      primitives::move_biases(bias->value(), counts[i], rate, data.grad_norm);
}

void CausalModel::report(const StepData& done, PendingStep& pending) const {
  pending.set_stage_times(done.stage_times);
  for (const StepData::Output& output : done.outputs) {
    if (output.routers) pending.add_routers(*output.routers, 0, output.balance);
    if (!output.loss.defined()) continue;
    const MicroBatch& batch = done.batches[output.batch];
    pending.add_loss(output.loss, output.z, output.nll,
                     own_documents(batch.documents, batch.targets, batch.input.cut));
  }
}

EvalResult CausalModel::evaluate(const std::vector<data::PackedRow>& rows) const {
  if (objective_) return objective_->evaluate(rows, nullptr, ranks_);
  return training::evaluate(decoder_, nullptr, rows, options_.micro_batch_tokens, ranks_);
}

}  // namespace temper::training
