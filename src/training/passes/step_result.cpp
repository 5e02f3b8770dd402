#include "training/passes/step_result.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "tensor/reading.h"

namespace temper::training {
namespace {

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

// A NaN's sign says nothing: "nan", never "-nan".
double printed(double value) { return std::isnan(value) ? NAN : value; }

int64_t count_tokens(const std::vector<data::PackedRow>& rows) {
  int64_t count = 0;
  for (const data::PackedRow& row : rows) count += row.size();
  return count;
}

}  // namespace

PendingStep::PendingStep(const std::vector<data::PackedRow>& rows, size_t num_sources,
                         const parallel::UpdateRanks& ranks)
    : ranks_(ranks) {
  update_tokens_ = count_tokens(rows);
  std::array counts{data::num_targets(rows), update_tokens_};
  ranks.rows.sum("tokens of the update", std::span<int64_t>(counts));
  known_.target_tokens = counts[0];
  if (num_sources > 1) known_.sources.resize(num_sources);
  if (counts[0] == 0 && counts[1] > 0)
    fail("a step has no target token; check the data with 'temper data inspect'");
}

void PendingStep::add_work(int64_t tokens, double flops) {
  if (!ranks_.counts) return;
  known_.tokens += tokens;
  known_.flops += flops;
}

void PendingStep::add_objective_work(double flops) {
  if (ranks_.judges) known_.flops += flops;
}

void PendingStep::add_loss(const Tensor& loss, const Tensor& z, const Tensor& nll,
                           std::vector<DocumentSpan> documents) {
  losses_.push_back(start_reading(loss));
  if (z.defined()) z_losses_.push_back(start_reading(z));
  if (nll.defined()) tokens_.emplace_back(start_reading(nll), std::move(documents));
}

template <class Sums>
void PendingStep::add_known(double loss, std::optional<Sums>& all, const Sums& sums) {
  known_.loss += loss;
  if (!all) all.emplace();
  all->add(sums);
}

void PendingStep::add_preference(double loss, const PreferenceResult& sums) {
  if (ranks_.judges) add_known(loss, known_.preference, sums);
}

void PendingStep::add_policy(double loss, const PolicyResult& sums) {
  if (ranks_.judges) add_known(loss, known_.policy, sums);
}

void PendingStep::add_distillation(double loss, const DistillationResult& sums) {
  add_known(loss, known_.distillation, sums);
}

void PendingStep::add_values(double loss, const ValueResult& sums) { add_known(loss, known_.values, sums); }

void PendingStep::watch_routers(const layers::Decoder& model) {
  if (model.num_routers() == 0) return;
  routers_ = PendingLoads(model);
  update_tokens_ = ranks_.rows.sum("tokens of the update", update_tokens_);
}

void PendingStep::add_routers(const layers::RouterTrace& trace, size_t part, const Tensor& balance) {
  routers_.add(trace, part);
  if (balance.defined()) balances_.push_back(start_reading(balance));
}

void PendingStep::set_grad_norm(const Tensor& norm) { grad_norm_ = start_reading(norm); }

void PreferenceResult::add(const PreferenceResult& other) {
  chosen_reward += other.chosen_reward;
  rejected_reward += other.rejected_reward;
  chosen_logp += other.chosen_logp;
  rejected_logp += other.rejected_logp;
  chosen += other.chosen;
  rejected += other.rejected;
  pairs += other.pairs;
  correct += other.correct;
  undecided += other.undecided;
  kl = other.kl;
}

PreferenceResult PreferenceResult::mean() const {
  const auto by = [](double sum, int64_t count) { return count == 0 ? 0 : sum / static_cast<double>(count); };
  PreferenceResult result = *this;
  result.chosen_reward = by(chosen_reward, chosen);
  result.rejected_reward = by(rejected_reward, rejected);
  result.chosen_logp = by(chosen_logp, chosen);
  result.rejected_logp = by(rejected_logp, rejected);
  return result;
}

void DistillationResult::add(const DistillationResult& other) {
  divergence += other.divergence;
  cross_entropy += other.cross_entropy;
  teacher_entropy += other.teacher_entropy;
  agreement += other.agreement;
  tokens += other.tokens;
  student_logits.add(other.student_logits);
  teacher_logits.add(other.teacher_logits);
}

DistillationResult DistillationResult::mean() const {
  const double count = static_cast<double>(std::max<int64_t>(1, tokens));
  DistillationResult result = *this;
  for (double* const sum :
       {&result.divergence, &result.cross_entropy, &result.teacher_entropy, &result.agreement})
    *sum /= count;
  return result;
}

void sum_over(collectives::Group& ranks, std::vector<SourceLoss>& sources) {
  if (ranks.is_alone()) return;
  const auto all = ranks.gather("losses by source", std::span<const SourceLoss>(sources));
  sources.clear();
  for (const std::vector<SourceLoss>& one : all) {
    sources.resize(std::max(sources.size(), one.size()));
    for (size_t i = 0; i < one.size(); ++i) {
      sources[i].sum += one[i].sum;
      sources[i].target_tokens += one[i].target_tokens;
    }
  }
}

namespace {

template <class Result>
void sum_of_those_that_have(collectives::Group& ranks, std::string_view name, std::optional<Result>& sums) {
  if (ranks.is_alone()) return;
  const std::vector<Result> mine(sums.has_value() ? 1 : 0, sums.value_or(Result{}));
  const auto all = ranks.gather(name, std::span<const Result>(mine));
  sums.reset();
  for (const std::vector<Result>& one : all) {
    if (one.empty()) continue;
    if (!sums) sums.emplace();
    sums->add(one.front());
  }
}

}  // namespace

void sum_over(collectives::Group& ranks, std::optional<PreferenceResult>& sums) {
  sum_of_those_that_have(ranks, "preferences", sums);
}

void sum_over(collectives::Group& ranks, std::optional<PolicyResult>& sums) {
  sum_of_those_that_have(ranks, "sums of the policy", sums);
}

void sum_over(collectives::Group& ranks, std::optional<DistillationResult>& sums) {
  sum_of_those_that_have(ranks, "sums of the distillation", sums);
}

void sum_over(collectives::Group& ranks, std::optional<ValueResult>& sums) {
  sum_of_those_that_have(ranks, "sums of the critic", sums);
}

void sum_over(collectives::Group& ranks, std::optional<PipelineResult>& sums) {
  sum_of_those_that_have(ranks, "times of the stages", sums);
}

void sum_over(collectives::Group& ranks, StepResult& result) {
  if (ranks.is_alone()) return;
  // All fields; routers are summed later (PendingLoads), and two are of all ranks already.
  auto& [loss, z_loss, balance_loss, routers, sources, preference, policy, distillation, values, pipeline,
         grad_norm, tokens, target_tokens, flops] = result;
  std::array sums{loss, z_loss, balance_loss, flops};
  ranks.sum("losses and work of the update", std::span<double>(sums));
  loss = sums[0];
  z_loss = sums[1];
  balance_loss = sums[2];
  flops = sums[3];
  tokens = ranks.sum("tokens of the update", tokens);
  sum_over(ranks, sources);
  sum_over(ranks, preference);
  sum_over(ranks, policy);
  sum_over(ranks, distillation);
  sum_over(ranks, values);
  sum_over(ranks, pipeline);
}

namespace {

// " on rank 1": whose own loss is NaN or infinite, while others' are; "" where that says nothing.
std::string ranks_without_a_loss(collectives::Group& ranks, double own) {
  if (ranks.is_alone()) return {};
  std::vector<std::string> found;
  const std::vector<uint8_t> finite =
      ranks.gather("losses that are numbers", static_cast<uint8_t>(std::isfinite(own)));
  for (size_t i = 0; i < finite.size(); ++i)
    if (finite[i] == 0) found.push_back(std::to_string(ranks.world_ranks()[i]));
  if (found.empty() || found.size() == finite.size()) return {};
  return fmt::format(" on rank{} {}", found.size() == 1 ? "" : "s", join(found));
}

}  // namespace

StepResult PendingStep::wait() {
  StepResult result = known_;
  for (const auto& loss : losses_) result.loss += *static_cast<const float*>(loss->wait());
  for (const auto& z : z_losses_) result.z_loss += *static_cast<const float*>(z->wait());
  for (const auto& balance : balances_) result.balance_loss += *static_cast<const float*>(balance->wait());
  for (const auto& [nll, documents] : tokens_)
    add_losses(result.sources, static_cast<const float*>(nll->wait()), documents);
  if (stage_times_) result.pipeline = stage_times_->wait();
  const double own_loss = result.loss;
  sum_over(ranks_.results, result);
  result.routers = routers_.wait(ranks_.results);
  result.loss -= result.z_loss;
  if (result.preference) result.preference = result.preference->mean();
  if (result.distillation) result.distillation = result.distillation->mean();
  if (grad_norm_) result.grad_norm = *static_cast<const float*>(grad_norm_->wait());
  const std::string router = describe_not_finite(result.routers);
  if (!std::isfinite(result.loss) || !std::isfinite(result.grad_norm))
    fail(
        "the loss is {}{} and the gradient norm {}{}: training diverged; lower the learning rate, lengthen "
        "the warm-up or continue from an earlier checkpoint",
        printed(result.loss), ranks_without_a_loss(ranks_.results, own_loss), printed(result.grad_norm),
        router.empty() ? "" : ", and " + router);
  return result;
}

EvalResult evaluate(const layers::Decoder& model, const layers::Adapter* adapter,
                    const std::vector<data::PackedRow>& rows, int64_t micro_batch_tokens,
                    const parallel::UpdateRanks& ranks) {
  EvalResult result;
  double sum = 0;
  for_each_pass(model, adapter, rows, micro_batch_tokens,
                [&](Tape& tape, const Var& hidden, const MicroBatch& batch, const layers::AdapterRows& all) {
                  const Tensor nll = model.loss(tape, hidden, batch.own_targets(), {}, all).nll.on({});
                  for (const float value : nll.values<float>()) sum += value;
                  add_losses(result.sources, nll.data<float>(),
                             own_documents(batch.documents, batch.targets, batch.input.cut));
                });
  sum = ranks.results.sum("losses of the evaluation", sum);
  result.target_tokens = ranks.rows.sum("target tokens of the evaluation", data::num_targets(rows));
  sum_over(ranks.results, result.sources);
  result.loss = result.target_tokens == 0 ? 0 : sum / static_cast<double>(result.target_tokens);
  return result;
}

}  // namespace temper::training
