#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "checkpoints/files/manifest.h"
#include "checkpoints/files/names.h"
#include "checkpoints/states/training_state.h"
#include "collectives/at_root.h"

namespace temper::checkpoints {

std::optional<int64_t> step_of_state_name(std::string_view name) {
  constexpr std::string_view kPrefix = "step-";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  const bool number = std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!number || name.size() < 6 || name.size() > 18) return std::nullopt;
  return std::stoll(std::string(name));
}

StateReader StateReader::open(const std::string& folder, int part, int parts) {
  const std::string path = without_slashes(folder);
  if (!is_directory(path)) fail("[{}] no such folder; expected a training state like step-000123", path);
  const std::optional<int64_t> step = step_of_state_name(file_name(path));
  if (!step) fail("[{}] is not a training state; expected a folder named like step-000123", path);
  const Manifest manifest = read_manifest(path, *step);
  check_sizes(path, manifest);
  check_hashes(path, manifest, part, parts);
  StateReader reader;
  reader.path_ = path;
  reader.step_ = *step;
  for (const auto& [name, digest] : manifest.files) reader.files_.push_back(name);
  return reader;
}

bool StateReader::has(std::string_view file_name) const {
  return std::find(files_.begin(), files_.end(), file_name) != files_.end();
}

std::string StateReader::checked_path(const std::string& file_name) const {
  if (!has(file_name)) fail("[{}] found no '{}', expected one of: {}", path_, file_name, list_some(files_));
  return join_path(path_, file_name);
}

Json StateReader::json(const std::string& file_name) const {
  return Json::parse_file(checked_path(file_name));
}
SafetensorsFile StateReader::tensors(const std::string& file_name) const {
  return SafetensorsFile(checked_path(file_name));
}
std::string StateReader::file(const std::string& file_name) const {
  return read_file(checked_path(file_name));
}

std::vector<StateInfo> list_states(const std::string& root) {
  std::vector<StateInfo> states;
  if (!exists(root)) return states;
  for (const std::string& name : list_directory(root)) {
    const std::string path = join_path(root, name);
    if (const auto step = step_of_state_name(name); step && is_directory(path))
      states.push_back({*step, path});
  }
  std::sort(states.begin(), states.end(),
            [](const StateInfo& a, const StateInfo& b) { return a.step < b.step; });
  return states;
}

std::optional<StateReader> open_newest(const std::string& root, collectives::Group& ranks) {
  const std::string newest_first = collectives::made_at_root(ranks, "checkpoints", [&] {
    Json::Array names;
    for (const StateInfo& state : list_states(root)) names.insert(names.begin(), Json(file_name(state.path)));
    return Json(std::move(names)).dump();
  });
  const Json names = Json::parse(newest_first, "checkpoints");
  if (names.as_array().empty()) return std::nullopt;
  for (const Json& name : names.as_array()) try {
      std::optional<StateReader> reader;
      collectives::at_each(ranks, "verifying the checkpoint", [&] {
        reader = StateReader::open(join_path(root, name.as_string()), ranks.rank(), ranks.size());
      });
      return reader;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kInput) throw;  // no memory is no damage
      log_warning(fmt::format("{}; this checkpoint is damaged and is skipped", error.what()));
    }
  fail(
      "[{}] found {} checkpoints, none of them intact (see the warnings); restore one from a backup, or "
      "start a new run in another folder",
      root, names.as_array().size());
}

std::vector<int64_t> prune_states(const std::string& root, int64_t keep_last,
                                  const std::vector<int64_t>& protected_steps) {
  if (keep_last < 1) fail("[{}] keeping the last {} checkpoints; expected at least 1", root, keep_last);
  const auto looks_intact = [](const StateInfo& state) {
    try {
      check_sizes(state.path, read_manifest(state.path, state.step));
      return true;
    } catch (const Error&) {
      return false;
    }
  };
  std::vector<StateInfo> states = list_states(root);
  std::vector<int64_t> deleted;
  int64_t kept = 0;
  for (auto state = states.rbegin(); state != states.rend(); ++state) {
    if (kept < keep_last) {
      kept += looks_intact(*state) ? 1 : 0;
      continue;
    }
    if (std::find(protected_steps.begin(), protected_steps.end(), state->step) != protected_steps.end())
      continue;
    discard_folder(state->path);
    deleted.push_back(state->step);
  }
  std::reverse(deleted.begin(), deleted.end());
  return deleted;
}

int64_t sweep_temporary(const std::string& root) {
  return sweep_staged(root, [](std::string_view target) { return step_of_state_name(target).has_value(); });
}

}  // namespace temper::checkpoints
