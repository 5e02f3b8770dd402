#include "recipes/learner/learner_folder.h"

#include "base/error.h"
#include "base/log.h"
#include "base/parts/build.h"
#include "base/text.h"
#include "checkpoints/adapter_folder.h"
#include "checkpoints/states/training_state.h"
#include "config/print.h"
#include "recipes/keys/conflicts.h"
#include "recipes/parts/output.h"
#include "recipes/setup/origin.h"

namespace temper::recipes {
namespace {

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

bool LearnerFolder::has_states() const { return !checkpoints::list_states(inputs_.files.states()).empty(); }

// A folder without a state or a result holds nothing that could be continued or lost.
void LearnerFolder::check() const {
  const RunFiles& files = inputs_.files;
  const bool never = inputs_.config.train.resume == Resume::kNever;
  if (never && (has_states() || exists(files.model()) || exists(files.adapter())))
    fail("[{}] holds a run already, and train.resume is never; choose another output, or train.resume auto",
         files.folder);
  if (!exists(files.config()) || !has_states()) return;
  const std::vector<std::string> conflicts = conflicting_keys(files.config(), inputs_.config);
  if (!conflicts.empty())
    fail(
        "[{}] holds a run with another configuration, which cannot be continued with this one:\n  {}\n"
        "{}, or restore these keys",
        files.folder, join(conflicts, "\n  "),
        inputs_.is_adapter() ? "Give the adapter another name (its key from starts from the saved adapter)"
                             : "Choose another output");
}

void LearnerFolder::open(const std::string& resolved_yaml) const {
  make_directories(inputs_.files.folder);
  check();
  if (inputs_.is_adapter() && !has_states())
    keep_source(inputs_.config.adapters.front().from, inputs_.files.from());
  checkpoints::sweep_temporary(inputs_.files.states());
  if (!has_states()) keep_config(resolved_yaml);
}

void LearnerFolder::keep_config(const std::string& resolved_yaml) const {
  write_config(inputs_.files.config(), inputs_.is_adapter() ? yaml_of(inputs_.config) : resolved_yaml);
}

void LearnerFolder::check_base(const Json& state) const {
  const Json* const base = state.find("base");
  if (base != nullptr && inputs_.is_adapter() && base->as_string() != inputs_.setup.origin.base)
    fail(
        "[{}] was trained on other weights than {} holds now; give the base that the run started with, or "
        "another output",
        inputs_.files.folder, inputs_.config.model.path);
}

// States of older versions do not contain it.
void LearnerFolder::check_origin(const Json& state) const {
  const Json* const origin = state.find("origin");
  if (origin == nullptr) return;
  for (const auto& [path, was] : origin->as_object()) {
    const Json* const is = inputs_.setup.origin.meaning.find(path);
    if (is == nullptr) continue;
    if (const std::string other = difference_of_origin(path, was, *is); !other.empty())
      fail("[{}] started with another {}; restore that, or {}", inputs_.files.folder, other,
           inputs_.is_adapter() ? "give the adapter another name (its key from starts from the saved adapter)"
                                : "choose another output");
  }
}

// States of older versions do not contain it.
void LearnerFolder::warn_of_program(const Json& state) const {
  const Json* const saved_by = state.find("program");
  if (saved_by == nullptr || saved_by->as_string() == program_version()) return;
  log_warning(
      fmt::format("[{}] was saved by temper {}, this is {}: the run resumes, but perhaps not bit for bit",
                  inputs_.files.folder, saved_by->as_string(), program_version()));
}

}  // namespace temper::recipes
