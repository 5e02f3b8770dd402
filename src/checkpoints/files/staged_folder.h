#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace temper::checkpoints {

// Which process a folder is written by, or, of several that write one together, which of them commits it.
struct StagedOwner {
  std::string process;  // to_string() of its name in base/process.h
  bool is_here = true;  // false: another rank of the run
};

// A folder that is written next to its target as `.tmp-<name>-<process>` (base/process.h) and takes the
// target's place when it is complete: readers see the old folder or the new one, never a part. Without
// commit() it is removed again; what a killed process left behind for the same target is swept away first.
// One at a time per target.
class StagedFolder {
 public:
  explicit StagedFolder(const std::string& target);
  // One that several processes write together, each its own files; the others leave commit() and what remains
  // of it to the owner. Nothing is swept away, as another may have begun.
  StagedFolder(const std::string& target, const StagedOwner& owner);
  ~StagedFolder();
  StagedFolder(const StagedFolder&) = delete;
  StagedFolder& operator=(const StagedFolder&) = delete;
  const std::string& path() const { return path_; }
  std::string operator/(std::string_view name) const;
  // Syncs the folder, renames it and syncs its parent. The files must be synced already.
  void commit();

 private:
  void check_target() const;
  void discard() noexcept;
  std::string target_, path_;
  bool is_owner_ = true;
};

std::string without_slashes(std::string path);  // at its end

// The name of a staged folder of a process, in the target's parent.
std::string staged_path(const std::string& target, const std::string& process);

// Removes the staged folders in `parent` whose target's name is accepted and whose process is gone; those of
// other hosts, whose processes cannot be seen from here, stay, with a warning. A target
// that was put aside and never replaced is put back. Returns the number of folders handled.
int64_t sweep_staged(const std::string& parent, const std::function<bool(std::string_view)>& accepts);

// Renames the folder to its staged path, then removes it: half-deleted, it is never seen under its name.
void discard_folder(const std::string& path);

// Throws kResources "needs X, has Y free" when the file system of `path` has less than `bytes`.
void require_free_disk(const std::string& path, int64_t bytes);

}  // namespace temper::checkpoints
