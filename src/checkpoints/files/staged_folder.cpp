#include "checkpoints/files/staged_folder.h"

#include <fcntl.h>
#include <new>

#include <cerrno>
#include <cstdio>
#include <optional>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/process.h"
#include "base/text.h"

namespace temper::checkpoints {
namespace {

constexpr std::string_view kPrefix = ".tmp-";
constexpr std::string_view kAside = ".old";  // a target that makes room on file systems without exchange

// Two folders change places in one step; false where the file system cannot.
bool exchange_names(const std::string& a, const std::string& b) {
  if (::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0) return true;
  if (errno == EINVAL || errno == ENOSYS || errno == ENOTSUP) return false;
  rename_path(a, b);  // for its message
  return true;
}

struct StagedName {
  std::string target;
  ProcessName owner;
  bool aside = false;
};

std::optional<StagedName> parse_name(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  const size_t dash = name.rfind('-');
  if (dash == std::string_view::npos) return std::nullopt;
  std::optional<ProcessName> owner = parse_process(name.substr(dash + 1));
  if (!owner) return std::nullopt;
  std::string_view target = name.substr(0, dash);
  const bool aside = target.ends_with(kAside);
  if (aside) target.remove_suffix(kAside.size());
  return StagedName{std::string(target), std::move(*owner), aside};
}

// Whether it may be taken away: this process's own is one that it did not finish.
bool is_left_behind(const ProcessName& owner, const std::string& path) {
  const ProcessState state = owner == this_process() ? ProcessState::kGone : state_of(owner);
  if (state == ProcessState::kUnknown)
    log_warning(fmt::format(
        "[{}] belongs to process {} of another host, {}: it stays. Remove it if that is no longer at "
        "work",
        path, owner.number, owner.host));
  return state == ProcessState::kGone;
}

}  // namespace

std::string without_slashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

std::string staged_path(const std::string& target, const std::string& process) {
  const std::string clean = without_slashes(target);
  return join_path(parent_path(clean), fmt::format("{}{}-{}", kPrefix, file_name(clean), process));
}

StagedFolder::StagedFolder(const std::string& target)
    : target_(without_slashes(target)), path_(staged_path(target, to_string(this_process()))) {
  check_target();
  const std::string name = file_name(target_);
  sweep_staged(parent_path(target_), [&](std::string_view each) { return each == name; });
  make_directories(path_);
}

StagedFolder::StagedFolder(const std::string& target, const StagedOwner& owner)
    : target_(without_slashes(target)), path_(staged_path(target, owner.process)), is_owner_(owner.is_here) {
  check_target();
  make_directories(path_);
}

void StagedFolder::check_target() const {
  const std::string name = file_name(target_);
  if (name.empty() || name == "." || name == "..")
    fail("[{}] cannot be replaced as a whole; name a folder", target_);
  if (exists(target_) && !is_directory(target_))
    fail("[{}] is a file, expected a folder; choose another name", target_);
}

StagedFolder::~StagedFolder() {
  if (is_owner_) discard();
}

void StagedFolder::discard() noexcept try {
  try {
    if (!path_.empty() && exists(path_)) remove_all(path_);
  } catch (const Error& error) {
    log_warning(fmt::format("a temporary folder could not be removed: {}", error.what()));
  }
} catch (const std::bad_alloc&) {
  // It is swept when the next checkpoint is written.
}

std::string StagedFolder::operator/(std::string_view name) const { return join_path(path_, name); }

void StagedFolder::commit() {
  sync_directory(path_);
  const std::string parent = parent_path(target_);
  if (!exists(target_)) {
    rename_path(path_, target_);
  } else if (!exchange_names(path_, target_)) {
    const std::string aside = join_path(
        parent, fmt::format("{}{}{}-{}", kPrefix, file_name(target_), kAside, to_string(this_process())));
    rename_path(target_, aside);
    rename_path(path_, target_);
    path_ = aside;
  }
  sync_directory(parent);
  discard();  // path_ now names the old folder
}

int64_t sweep_staged(const std::string& parent, const std::function<bool(std::string_view)>& accepts) {
  int64_t handled = 0;
  if (!is_directory(parent)) return handled;
  for (const std::string& name : list_directory(parent)) {
    const std::optional<StagedName> staged = parse_name(name);
    if (!staged || !accepts(staged->target)) continue;
    const std::string path = join_path(parent, name), target = join_path(parent, staged->target);
    if (!is_left_behind(staged->owner, path)) continue;
    if (staged->aside && !exists(target)) {
      rename_path(path, target);
      log_warning(fmt::format("[{}] put back after an interrupted replacement", target));
    } else {
      remove_all(path);
      log_info(fmt::format("removed {}, left behind by an interrupted process", path));
    }
    ++handled;
  }
  return handled;
}

void discard_folder(const std::string& path) {
  const std::string doomed = staged_path(path, to_string(this_process()));
  if (exists(doomed)) remove_all(doomed);
  rename_path(path, doomed);
  sync_directory(parent_path(doomed));
  remove_all(doomed);
}

void require_free_disk(const std::string& path, int64_t bytes) {
  const int64_t available = free_disk_bytes(path);
  if (available < bytes)
    fail_resources("[{}] needs {}, has {} free; free some space or choose another folder", path,
                   format_bytes(bytes), format_bytes(available));
}

}  // namespace temper::checkpoints
