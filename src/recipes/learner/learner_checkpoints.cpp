// A learner's folder and its checkpoints: starting, resuming, saving.
#include <cmath>

#include "base/build.h"
#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoints/adapter_folder.h"
#include "collectives/at_root.h"
#include "config/print.h"
#include "recipes/keys/conflicts.h"
#include "recipes/learner/learner.h"
#include "recipes/parts/critic.h"
#include "recipes/parts/output.h"
#include "recipes/setup/origin.h"
#include "recipes/setup/quantizer_state.h"

namespace temper::recipes {
namespace {

constexpr const char *kOptimizer = "optimizer", *kCritic = "critic";  // the stems of their files

std::string yaml_of(RunConfig config) { return config::dump(config::schema_of(config)); }

// The folder that an adapter starts from may change while the run is stopped.
void keep_source(const std::string& from, const std::string& copy) {
  remove_all(copy);
  if (from.empty()) return;
  make_directories(copy);
  for (const std::string& name : list_directory(from))
    if (name == checkpoints::kAdapterConfig || name.ends_with(".safetensors"))
      write_file(join_path(copy, name), read_file(join_path(from, name)));
}

}  // namespace

bool Learner::has_states() const { return !checkpoints::list_states(files_.states()).empty(); }

// A folder without a state or a result holds nothing that could be continued or lost.
void Learner::check_folder() const {
  const bool never = config_.train.resume == Resume::kNever;
  if (never && (has_states() || exists(files_.model()) || exists(files_.adapter())))
    fail("[{}] holds a run already, and train.resume is never; choose another output, or train.resume auto",
         files_.folder);
  if (!exists(files_.config()) || !has_states()) return;
  const std::vector<std::string> conflicts = conflicting_keys(files_.config(), config_);
  if (!conflicts.empty())
    fail(
        "[{}] holds a run with another configuration, which cannot be continued with this one:\n  {}\n"
        "{}, or restore these keys",
        files_.folder, join(conflicts, "\n  "),
        is_adapter() ? "Give the adapter another name (its key from starts from the saved adapter)"
                     : "Choose another output");
}

// The record of a run that can be resumed stays as it is until this one has resumed it.
void Learner::open_folder(const std::string& resolved_yaml) const {
  make_directories(files_.folder);
  check_folder();
  if (is_adapter() && !has_states()) keep_source(config_.adapters.front().from, files_.from());
  checkpoints::sweep_temporary(files_.states());
  if (!has_states()) keep_config(resolved_yaml);
}

void Learner::keep_config(const std::string& resolved_yaml) const {
  write_config(files_.config(), is_adapter() ? yaml_of(config_) : resolved_yaml);
}

bool Learner::restore() {
  const auto reader = checkpoints::open_newest(files_.states(), ranks());
  if (!reader) return false;
  const Json state = reader->json();
  if (const Json* base = state.find("base");
      base != nullptr && is_adapter() && base->as_string() != setup_->base)
    fail(
        "[{}] was trained on other weights than {} holds now; give the base that the run started with, or "
        "another output",
        files_.folder, config_.model.path);
  check_origin(state);
  checkpoints::read_placed(*reader, kOptimizer, optimizer_->state());
  if (!is_adapter()) read_quantizers(*reader, setup_->model->decoder.quantizers());
  state_.step = state.at("step").as_int();
  state_.tokens = state.at("tokens").as_int();
  state_.train_seconds = state.at("train_seconds").as_double();
  state_.accuracy_before = state.at("accuracy_before").as_double();
  if (const Json* started = state.find("started")) state_.started = started->as_string();
  state_.best_loss = state.at("best_loss").as_double();
  state_.best_step = state.at("best_step").as_int();
  state_.last_loss = state.at("last_loss").as_double();
  saved_step_ = asked_step_ = state_.step;
  kept_step_ = state_.best_step;
  optimizer_->restored(std::max<int64_t>(0, state_.step - held_updates_));
  if (Critic* const critic = batches_->critic()) {
    checkpoints::read_placed(*reader, kCritic, critic->state());
    critic->restored(state_.step);
  }
  owes_evaluation_ = state.find("owes_evaluation") != nullptr;
  batches_->restore(state.at("data"), state.find("stopped") != nullptr);
  log_info(fmt::format("resuming {} after step {}", files_.folder, state_.step));
  tell_program(state);
  warn_of_jump(state);
  return true;
}

// States of older versions do not say.
void Learner::tell_program(const Json& state) const {
  const Json* const saved_by = state.find("program");
  if (saved_by == nullptr || saved_by->as_string() == program_version()) return;
  log_warning(
      fmt::format("[{}] was saved by temper {}, this is {}: the run resumes, but perhaps not bit for bit",
                  files_.folder, saved_by->as_string(), program_version()));
}

// Another schedule, or as many updates more. States of older versions do not say what would have come.
void Learner::warn_of_jump(const Json& state) const {
  const Json* planned = state.find("next_lr");
  if (planned == nullptr || is_done() ||
      !(std::abs(lr() - planned->as_double()) > 1e-9 * config_.train.optimizer.lr))
    return;
  log_warning(fmt::format(
      "[{}] the learning rate jumps: update {} would have had {:.3g} as the run was configured before, and "
      "has {:.3g} now, with {} updates in all",
      files_.folder, state_.step + 1, planned->as_double(), lr(), total_steps()));
}

// Other texts, or another model, under the same names. States of older versions do not say.
void Learner::check_origin(const Json& state) const {
  const Json* origin = state.find("origin");
  if (origin == nullptr) return;
  for (const auto& [path, was] : origin->as_object()) {
    const Json* is = setup_->origin.find(path);
    if (is == nullptr) continue;
    if (const std::string other = difference_of_origin(path, was, *is); !other.empty())
      fail("[{}] started with another {}; restore that, or {}", files_.folder, other,
           is_adapter() ? "give the adapter another name (its key from starts from the saved adapter)"
                        : "choose another output");
  }
}

Json Learner::state_to_save() const {
  Json state = Json::Object{{"step", state_.step},
                            {"tokens", state_.tokens},
                            {"train_seconds", state_.train_seconds},
                            {"program", program_version()},
                            {"started", state_.started},
                            {"accuracy_before", state_.accuracy_before},
                            {"best_loss", state_.best_loss},
                            {"best_step", state_.best_step},
                            {"last_loss", state_.last_loss},
                            {"next_lr", lr()},
                            {"data", refused_at_ ? *refused_at_ : batches_->state()},
                            {"origin", setup_->origin}};
  if (!stop_reason_.empty()) state.set("stopped", stop_reason_);
  if (owes_evaluation_) state.set("owes_evaluation", true);
  if (is_adapter()) state.set("base", setup_->base);
  return state;
}

void Learner::prepare_save(bool again, bool copy) {
  if (!is_unsaved() && !again) return;
  prepared_.emplace(Save{state_.step,
                         checkpoints::SharedState(files_.states(), state_.step, owner_of_states_),
                         checkpoints::OwnedTensors(optimizer_->state(), ranks().rank()),
                         {},
                         {},
                         {},
                         state_.best_step});
  Save& save = *prepared_;
  if (const Critic* const critic = batches_->critic())
    save.critic = checkpoints::OwnedTensors(critic->state(), ranks().rank());
  if (is_root()) save.state = state_to_save();
  if (is_root() && !is_adapter()) save.quantizers = owned_quantizers(setup_->model->decoder.quantizers());
  if (copy) {
    save.tensors.copy();
    save.critic.copy();
    save.quantizers.copy();
  }
  asked_step_ = state_.step;
}

void Learner::write_save(const std::atomic<bool>& given_up) noexcept {
  if (!prepared_) return;
  Save& save = *prepared_;
  save.files.write([&](checkpoints::StateWriter& writer) {
    save.tensors.add_to(writer, kOptimizer, ranks().rank(), ranks().size(), given_up);
    save.critic.add_to(writer, kCritic, ranks().rank(), ranks().size(), given_up);
    save.quantizers.add_to(writer, kQuantizers, 0, 1, given_up);
    if (is_root()) writer.add_json("state.json", save.state);
  });
}

void Learner::commit_save() {
  if (!prepared_) return;
  Save save = std::move(*prepared_);
  prepared_.reset();
  // A run that resumes from it, after a power cut, too, has the numbers of all updates before. Where they
  // cannot be synced the run ends behind its checkpoint.
  const std::optional<Error> failed = collectives::error_in([&] {
    setup_->kept_errors->at_root([&](const collectives::Root& root) { metrics_.get(root).sync(); });
  });
  save.files.commit(ranks());
  saved_step_ = save.step;
  kept_step_ = save.best_step;
  if (failed) throw Error(*failed);
}

void Learner::prune() const {
  std::vector<int64_t> kept;
  if (kept_step_ >= 0) kept.push_back(kept_step_);
  checkpoints::prune_states(files_.states(), config_.checkpoint.keep_last, kept);
}

}  // namespace temper::recipes
