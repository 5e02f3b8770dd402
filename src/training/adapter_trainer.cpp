#include "training/adapter_trainer.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/tracing/trace.h"
#include "layers/glue.h"
#include "parallel/model_parts.h"
#include "tensor/host_inputs.h"
#include "training/passes/flops.h"
#include "training/passes/staged_passes.h"

namespace temper::training {

// The rows of all shares, and how far each share has come.
struct AdapterTrainer::Step {
  Step(const std::vector<AdapterShare>& all, const parallel::UpdateRanks& ranks) : shares(all) {
    for (size_t i = 0; i < shares.size(); ++i) {
      adapters.push_back(shares[i].adapter);
      pending.emplace_back(*shares[i].rows, shares[i].num_sources, ranks);
      const Objective* objective = shares[i].objective;
      losses.push_back(
          objective == nullptr ? nullptr : objective->begin(*shares[i].rows, shares[i].adapter, ranks.rows));
      tokens.push_back(tokens_before(*shares[i].rows, ranks.rows));
      rows.insert(rows.end(), shares[i].rows->begin(), shares[i].rows->end());
      owners.resize(rows.size(), i);
    }
  }
  const std::vector<AdapterShare>& shares;
  std::vector<const layers::Adapter*> adapters;
  std::vector<PendingStep> pending;
  std::vector<std::unique_ptr<StepLoss>> losses;  // null: the next token
  std::vector<data::PackedRow> rows;
  std::vector<size_t> owners;   // of each row: its share
  std::vector<int64_t> tokens;  // of each share, those of the update that come before: dropout counts them

 private:
  // The ranks' rows stand in the order of the ranks.
  static int64_t tokens_before(const std::vector<data::PackedRow>& rows, collectives::Group& ranks) {
    int64_t mine = 0;
    for (const data::PackedRow& row : rows) mine += row.size();
    const std::vector<int64_t> all = ranks.gather("tokens of an adapter", mine);
    return std::accumulate(all.begin(), all.begin() + ranks.rank(), int64_t{0});
  }
};

// Consecutive rows of a micro-batch that belong to one share.
struct AdapterTrainer::Part {
  size_t share = 0;
  layers::AdapterRows rows;  // with padding
  int64_t tokens = 0;        // without
  Tensor targets;
  std::vector<DocumentSpan> documents;
  layers::TokenCut cut;

  // Of the tokens that this rank computes.
  layers::AdapterRows own_rows() const { return rows.own(cut); }
  LossInputs inputs(const Var& hidden) const { return {hidden, targets, documents, cut, own_rows()}; }
};

AdapterTrainer::AdapterTrainer(const layers::Decoder& model, const TrainerOptions& options,
                               const parallel::UpdateRanks& ranks)
    : model_(model), options_(options), ranks_(ranks), stage_costs_(stage_costs(model, options, true)) {
  if (options.cuda_graph == CudaGraph::kOn)
    fail("[train.cuda_graph] is on, but steps of adapters are not captured; use auto or off");
}

std::vector<AdapterTrainer::Part> AdapterTrainer::parts_of(Step& step, const MicroBatch& batch, size_t begin,
                                                           size_t end) const {
  std::vector<Part> parts;
  auto document = batch.documents.begin();
  for (size_t i = begin; i < end; ++i) {
    const size_t owner = step.owners[i];
    const AdapterShare& share = step.shares[owner];
    if (parts.empty() || parts.back().share != owner)
      parts.push_back({owner,
                       {share.adapter, 0, true, share.seed, static_cast<uint64_t>(share.optimizer->steps()),
                        step.tokens[owner]},
                       0,
                       {},
                       {},
                       {}});
    Part& part = parts.back();
    const auto count = static_cast<std::ptrdiff_t>(step.rows[i].document_lengths.size());
    part.documents.insert(part.documents.end(), document, document + count);
    document += count;
    part.tokens += step.rows[i].size();
    step.tokens[owner] += step.rows[i].size();
  }
  // What no row is in is the first one's.
  if (begin == end)
    parts.push_back(
        {0, {step.shares[0].adapter, 0, true, step.shares[0].seed, 0, step.tokens[0]}, 1, {}, {}, {}});
  int64_t first = 0;
  for (Part& part : parts) {
    part.rows.rows = padded_tokens(part.tokens, form_of(model_));
    part.targets = batch.targets.narrow(0, first, part.rows.rows);
    part.cut = batch.input.cut.part(first, part.rows.rows);
    first += part.rows.rows;
  }
  return parts;
}

// A micro-batch, and whose its rows are. A rank that only keeps step has none.
struct AdapterTrainer::Prepared {
  MicroBatch batch;
  std::vector<Part> parts;
  bool has_rows = true;
  // By part, then by router, what the routers of all stages choose (counts_of_stages); empty: all routers are
  // here, or nothing is balanced.
  std::vector<std::vector<Tensor>> counts = {};
};

AdapterTrainer::Prepared AdapterTrainer::prepare(Step& step, size_t begin, size_t end) const {
  MicroBatch batch = gather(step.rows, begin, end, form_of(model_), step.owners);
  std::vector<Part> parts = parts_of(step, batch, begin, end);
  return {std::move(batch), std::move(parts), begin != end};
}

layers::Decoder::Options AdapterTrainer::options_of(const Step& step, const Prepared& prepared) const {
  layers::Decoder::Options forward;
  forward.checkpoint_layers = options_.checkpointing == Checkpointing::kFull;
  for (const Part& part : prepared.parts) forward.adapters.push_back(part.rows);
  forward.all_adapters = step.adapters;
  forward.routers = watch_routers(model_, prepared.batch);
  return forward;
}

Var AdapterTrainer::pass(Tape& tape, Step& step, const Prepared& prepared,
                         const layers::Decoder::Part& at) const {
  const layers::Decoder::Options forward = options_of(step, prepared);
  Var made = model_.forward(tape, prepared.batch.input, forward, at);
  const layers::ModelStages& stages = model_.ranks().stages;
  std::vector<Var> losses;
  for (size_t i = 0; i < prepared.parts.size(); ++i) {
    const Part& part = prepared.parts[i];
    PendingStep& pending = step.pending[part.share];
    if (at.index == stages.place())  // once, whatever the rank's parts of the layers
      pending.add_work(
          prepared.has_rows ? part.tokens : 0,
          adapter_training_flops(model_.config(), part.documents, part.rows.adapter->num_update_elements()));
    if (forward.routers) add_routers(tape, *forward.routers, prepared, i, pending, losses);
  }
  if (at.index + 1 < stages.num_parts()) {
    for (const Var& loss : losses) made = layers::with_loss(tape, made, loss);
    return made;
  }
  add_losses(tape, made, step, prepared, losses);
  return layers::add_losses(tape, losses);
}

void AdapterTrainer::add_routers(Tape& tape, const layers::RouterTrace& routers, const Prepared& prepared,
                                 size_t part, PendingStep& pending, std::vector<Var>& losses) const {
  Tensor balance;
  if (const double factor = options_.routers.balance_factor; factor > 0) {
    const Var loss = model_.balance().loss(
        tape, routers, part,
        {static_cast<float>(factor), pending.inverse_tokens(),
         prepared.counts.empty() ? counts_of_context(model_, routers, part) : prepared.counts[part]});
    balance = loss.value;
    if (balance.defined()) losses.push_back(loss);  // otherwise no router is here
  }
  pending.add_routers(routers, part, balance);
}

// The passes once more, before those that learn.
void AdapterTrainer::count_routers(const Step& step, std::vector<Prepared>& batches) const {
  if (model_.num_routers() == 0 || options_.routers.balance_factor == 0) return;
  std::vector<StagedTraces> traces;
  for (const Prepared& batch : batches) traces.push_back({.learners = batch.parts.size()});
  read_passes(model_, batches.size(),
              {[&](Tape& tape, size_t batch, const layers::Decoder::Part& part) {
                 layers::Decoder::Options forward = options_of(step, batches[batch]);
                 forward.checkpoint_layers = false;
                 traces[batch].passes.push_back(forward.routers);
                 return model_.forward(tape, batches[batch].batch.input, forward, part);
               },
               [&](size_t batch) { return model_.make_part_input(batches[batch].batch.input); }});
  auto counts = counts_of_stages(model_, traces);
  for (size_t batch = 0; batch < batches.size(); ++batch) batches[batch].counts = std::move(counts[batch]);
}

void AdapterTrainer::add_losses(Tape& tape, const Var& all, Step& step, const Prepared& prepared,
                                std::vector<Var>& losses) const {
  const std::vector<Part>& parts = prepared.parts;
  std::vector<int64_t> counts;
  for (const Part& part : parts) counts.push_back(part.own_rows().rows);
  const std::vector<Var> hidden =
      parts.size() == 1 ? std::vector{all} : layers::split_rows(tape, all, counts);
  for (size_t i = 0; i < parts.size(); ++i) {
    const Part& part = parts[i];
    PendingStep& pending = step.pending[part.share];
    if (step.losses[part.share]) {
      losses.push_back(step.losses[part.share]->of(tape, part.inputs(hidden[i]), pending));
      continue;
    }
    const auto [loss, nll, z] =
        model_.loss(tape, hidden[i], part.cut.own_of(part.targets),
                    {pending.scale(), static_cast<float>(options_.z_loss)}, part.own_rows());
    pending.add_loss(loss.value, z, step.shares[part.share].num_sources > 1 ? nll : Tensor(),
                     own_documents(part.documents, part.targets, part.cut));
    losses.push_back(loss);
  }
}

void AdapterTrainer::run(Step& step, size_t begin, size_t end) const {
  // What layers ask for of the documents is brought once.
  HostInputs inputs(model_.device());
  const HostInputs::Scope scope(inputs, false);
  const Prepared prepared = prepare(step, begin, end);
  Tape tape(tape_options(options_));
  const Var loss = [&] {
    const trace::Span forward("forward");
    return pass(tape, step, prepared, {});
  }();
  const trace::Span backward("backward");
  tape.backward(loss);
}

void AdapterTrainer::run_staged(Step& step, const std::vector<std::pair<size_t, size_t>>& cuts) const {
  const layers::ModelStages& stages = model_.ranks().stages;
  int first_trained = stages.num_parts() - 1;
  for (const AdapterShare& share : step.shares)
    first_trained = std::min(first_trained, parallel::first_trained_part(*share.adapter, stages));
  std::vector<Prepared> batches;
  for (const auto& [begin, end] : cuts) batches.push_back(prepare(step, begin, end));
  count_routers(step, batches);
  StagedPasses passes(stages, model_.device(), tape_options(options_),
                      {[&](Tape& tape, size_t batch, const layers::Decoder::Part& part) {
                         return pass(tape, step, batches[batch], part);
                       },
                       [&](size_t batch) { return model_.make_part_input(batches[batch].batch.input); }});
  const std::optional<StageTimes> times =
      passes.train(batches.size(), {options_.pipeline, stage_costs_, first_trained});
  for (PendingStep& pending : step.pending) pending.set_stage_times(times);
}

std::vector<PendingStep> AdapterTrainer::begin(const std::vector<AdapterShare>& shares) {
  const trace::Span span("step");
  Step step(shares, ranks_);
  for (const AdapterShare& share : shares) share.adapter->parameters().reset_gradients();
  for (PendingStep& pending : step.pending) pending.watch_routers(model_);
  const auto cuts = cut_micro_batches(model_, step.rows, options_.micro_batch_tokens);
  if (model_.ranks().stages.count() > 1)
    run_staged(step, cuts);
  else
    for (const auto& [begin, end] : cuts) run(step, begin, end);
  const trace::Span update("update");
  for (size_t i = 0; i < shares.size(); ++i) {
    shares[i].optimizer->sum_gradients(ranks_.tokens);
    const Tensor norm = shares[i].optimizer->grad_norm();
    step.pending[i].set_grad_norm(norm);
    shares[i].optimizer->step(shares[i].lr, norm, options_.max_grad_norm);
  }
  return std::move(step.pending);
}

}  // namespace temper::training
