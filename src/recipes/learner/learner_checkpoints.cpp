#include "recipes/learner/learner_checkpoints.h"

#include "base/error.h"
#include "recipes/learner/learner_folder.h"
#include "recipes/parts/critic.h"
#include "recipes/setup/quantizer_state.h"

namespace temper::recipes {
namespace {

constexpr const char *kOptimizer = "optimizer", *kCritic = "critic";  // the stems of their files

}  // namespace

std::optional<Json> LearnerCheckpoints::restore(const TrainedModel& trained, Critic* critic,
                                                const UpdateSchedule& schedule) {
  owner_ = checkpoints::owner_of_states(inputs_.ranks());
  const auto reader = checkpoints::open_newest(inputs_.files.states(), inputs_.ranks());
  if (!reader) return std::nullopt;
  Json state = reader->json();
  const LearnerFolder folder(inputs_);
  folder.check_base(state);
  folder.check_origin(state);
  checkpoints::read_placed(*reader, kOptimizer, trained.optimizer().state());
  if (!inputs_.is_adapter()) read_quantizers(*reader, inputs_.setup.model->decoder.quantizers());
  const LearnerProgress progress = LearnerProgress::of(state);
  saved_step_ = asked_step_ = progress.step;
  kept_step_ = progress.best_step;
  trained.optimizer().restored(schedule.made_of(progress.step));
  if (critic != nullptr) {
    checkpoints::read_placed(*reader, kCritic, critic->state());
    critic->restored(progress.step);
  }
  return state;
}

void LearnerCheckpoints::prepare(const LearnerProgress& progress, Json state, const TrainedModel& trained,
                                 const Critic* critic, bool copy) {
  const int rank = inputs_.ranks().rank();
  Unnamed& save = prepared_.emplace(Unnamed{progress.step,
                                            progress.best_step,
                                            std::move(state),
                                            {inputs_.files.states(), progress.step, owner_},
                                            checkpoints::OwnedTensors(trained.optimizer().state(), rank)});
  if (critic != nullptr) save.critic = checkpoints::OwnedTensors(critic->state(), rank);
  if (inputs_.is_root() && !inputs_.is_adapter())
    save.quantizers = owned_quantizers(inputs_.setup.model->decoder.quantizers());
  if (copy)
    for (checkpoints::OwnedTensors* tensors : {&save.tensors, &save.critic, &save.quantizers})
      tensors->copy();
  asked_step_ = progress.step;
}

void LearnerCheckpoints::write(const std::atomic<bool>& given_up) noexcept {
  if (!prepared_) return;
  Unnamed& save = *prepared_;
  save.files.write([&](checkpoints::StateWriter& writer) {
    const int rank = inputs_.ranks().rank(), ranks = inputs_.ranks().size();
    save.tensors.add_to(writer, kOptimizer, rank, ranks, given_up);
    save.critic.add_to(writer, kCritic, rank, ranks, given_up);
    save.quantizers.add_to(writer, kQuantizers, 0, 1, given_up);
    if (inputs_.is_root()) writer.add_json("state.json", save.state);
  });
}

void LearnerCheckpoints::commit(LearnerMetrics& metrics) {
  if (!prepared_) return;
  Unnamed save = std::move(*prepared_);
  prepared_.reset();
  // A run that resumes from it, after a power cut, too, has the numbers of all updates before. Where they
  // cannot be synced the run ends behind its checkpoint.
  const std::optional<Error> failed = collectives::error_in([&] { metrics.sync(); });
  save.files.commit(inputs_.ranks());
  saved_step_ = save.step;
  kept_step_ = save.best_step;
  if (failed) throw Error(*failed);
}

void LearnerCheckpoints::prune() const {
  std::vector<int64_t> kept;
  if (kept_step_ >= 0) kept.push_back(kept_step_);
  checkpoints::prune_states(inputs_.files.states(), inputs_.config.checkpoint.keep_last, kept);
}

}  // namespace temper::recipes
