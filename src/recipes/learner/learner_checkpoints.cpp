// A learner's folder and its checkpoints: starting, resuming, saving.
#include "base/build.h"
#include "base/log.h"
#include "collectives/at_root.h"
#include "recipes/learner/learner.h"
#include "recipes/learner/learner_folder.h"
#include "recipes/parts/critic.h"
#include "recipes/setup/quantizer_state.h"

namespace temper::recipes {
namespace {

constexpr const char *kOptimizer = "optimizer", *kCritic = "critic";  // the stems of their files

}  // namespace

bool Learner::restore() {
  const auto reader = checkpoints::open_newest(inputs_.files.states(), inputs_.ranks());
  if (!reader) return false;
  const Json state = reader->json();
  const LearnerFolder folder(inputs_);
  folder.check_base(state);
  folder.check_origin(state);
  checkpoints::read_placed(*reader, kOptimizer, optimizer_->state());
  if (!is_adapter()) read_quantizers(*reader, inputs_.setup.model->decoder.quantizers());
  progress_ = LearnerProgress::of(state);
  saved_step_ = asked_step_ = progress_.step;
  kept_step_ = progress_.best_step;
  optimizer_->restored(schedule_.made_of(progress_.step));
  if (Critic* const critic = batches_->critic()) {
    checkpoints::read_placed(*reader, kCritic, critic->state());
    critic->restored(progress_.step);
  }
  batches_->restore(state.at("data"), state.find("stopped") != nullptr);
  log_info(fmt::format("resuming {} after step {}", inputs_.files.folder, progress_.step));
  folder.warn_of_program(state);
  if (!is_done()) schedule_.warn_of_jump(progress_.step, state);
  return true;
}

Json Learner::state_to_save() const {
  Json::Object all = progress_.to_json();
  all.emplace_back("next_lr", schedule_.lr(progress_.step));
  all.emplace_back("data", refused_at_ ? *refused_at_ : batches_->state());
  all.emplace_back("origin", inputs_.setup.origin);
  Json state = std::move(all);
  if (!stop_reason_.empty()) state.set("stopped", stop_reason_);
  if (progress_.owes_evaluation) state.set("owes_evaluation", true);
  if (is_adapter()) state.set("base", inputs_.setup.base);
  return state;
}

void Learner::prepare_save(bool again, bool copy) {
  if (!is_unsaved() && !again) return;
  prepared_.emplace(Save{progress_.step,
                         checkpoints::SharedState(inputs_.files.states(), progress_.step, owner_of_states_),
                         checkpoints::OwnedTensors(optimizer_->state(), inputs_.ranks().rank()),
                         {},
                         {},
                         {},
                         progress_.best_step});
  Save& save = *prepared_;
  if (const Critic* const critic = batches_->critic())
    save.critic = checkpoints::OwnedTensors(critic->state(), inputs_.ranks().rank());
  if (inputs_.is_root()) save.state = state_to_save();
  if (inputs_.is_root() && !is_adapter())
    save.quantizers = owned_quantizers(inputs_.setup.model->decoder.quantizers());
  if (copy) {
    save.tensors.copy();
    save.critic.copy();
    save.quantizers.copy();
  }
  asked_step_ = progress_.step;
}

void Learner::write_save(const std::atomic<bool>& given_up) noexcept {
  if (!prepared_) return;
  Save& save = *prepared_;
  save.files.write([&](checkpoints::StateWriter& writer) {
    save.tensors.add_to(writer, kOptimizer, inputs_.ranks().rank(), inputs_.ranks().size(), given_up);
    save.critic.add_to(writer, kCritic, inputs_.ranks().rank(), inputs_.ranks().size(), given_up);
    save.quantizers.add_to(writer, kQuantizers, 0, 1, given_up);
    if (inputs_.is_root()) writer.add_json("state.json", save.state);
  });
}

void Learner::commit_save() {
  if (!prepared_) return;
  Save save = std::move(*prepared_);
  prepared_.reset();
  // A run that resumes from it, after a power cut, too, has the numbers of all updates before. Where they
  // cannot be synced the run ends behind its checkpoint.
  const std::optional<Error> failed = collectives::error_in([&] { metrics_.sync(); });
  save.files.commit(inputs_.ranks());
  saved_step_ = save.step;
  kept_step_ = save.best_step;
  if (failed) throw Error(*failed);
}

void Learner::prune() const {
  std::vector<int64_t> kept;
  if (kept_step_ >= 0) kept.push_back(kept_step_);
  checkpoints::prune_states(inputs_.files.states(), inputs_.config.checkpoint.keep_last, kept);
}

}  // namespace temper::recipes
