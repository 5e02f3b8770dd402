#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json/json.h"
#include "checkpoints/files/safetensors.h"
#include "checkpoints/files/staged_folder.h"
#include "collectives/local/local.h"

// The states of a training run, one folder each below a root:
//   root/step-000123/manifest.json        size and hash of every other file
//   root/step-000123/state.json           step, data position, seed, metrics, …
//   root/step-000123/*.safetensors        parameters, master weights, moments, in files of the ranks that
//                                         had them (placed_tensors.h)
// A state appears complete or not at all; a process that is killed leaves older states as they were.
namespace temper::checkpoints {

// Writes one state. Errors (kResources when the disk is full) leave older states untouched; without commit()
// nothing remains. The disk is asked for enough space before each tensor file is begun.
class StateWriter {
 public:
  StateWriter(const std::string& root, int64_t step);
  // One of several that write a state together (shared_state.h).
  StateWriter(const std::string& root, int64_t step, const StagedOwner& owner);

  // File names are plain and new. Tensors are written in the order given; source(i) gives tensors[i], on any
  // device, and one is held at a time.
  void add_tensors(const std::string& file_name, std::vector<TensorInfo> tensors,
                   const std::function<Tensor(size_t)>& source, const Metadata& metadata = {});
  void add_json(const std::string& file_name, const Json& value);  // finite numbers and valid UTF-8 only
  void add_file(const std::string& file_name, std::string_view data);

  const FileDigests& files() const { return files_; }
  // What others have written into the folder. An Error where a file is not there in its size.
  void add_written(const FileDigests& files);

  // Writes the manifest, syncs, and gives the state its name, replacing one of the same step. Returns its
  // path.
  std::string commit();

 private:
  std::string begin_file(const std::string& file_name);
  void end_file(const std::string& file_name, FileDigest digest);

  int64_t step_;
  std::string target_;
  StagedFolder folder_;
  FileDigests files_;
  bool open_ = true;  // false after commit() and while a file is unfinished
};

struct StateInfo {
  int64_t step = 0;
  std::string path;
};

// A state whose files are those of its manifest.
class StateReader {
 public:
  // Verifies size and hash of every file; an Error names the first that differs, what was found and expected.
  // Of several that verify it together each reads the files of one part for their hashes.
  static StateReader open(const std::string& path, int part = 0, int parts = 1);

  const std::string& path() const { return path_; }
  int64_t step() const { return step_; }
  const std::vector<std::string>& files() const { return files_; }  // without the manifest
  bool has(std::string_view file_name) const;
  Json json(const std::string& file_name = "state.json") const;
  SafetensorsFile tensors(const std::string& file_name) const;
  std::string file(const std::string& file_name) const;  // its contents

 private:
  std::string checked_path(const std::string& file_name) const;
  std::string path_;
  int64_t step_ = 0;
  std::vector<std::string> files_;
};

// The states below root, by step; not verified. None when root does not exist.
std::vector<StateInfo> list_states(const std::string& root);

// The newest state that verifies. Damaged ones are reported with log_warning and passed over; nothing when
// there are no states at all; an Error when there are some and none verifies. Several ranks verify some files
// each, and have the same result.
std::optional<StateReader> open_newest(const std::string& root,
                                       collectives::Group& ranks = collectives::alone());

// Deletes all but the newest `keep_last` (at least 1) states and the protected steps. States whose manifest
// or file sizes are wrong do not count as kept. A state is renamed before it is deleted. Returns the steps
// deleted.
std::vector<int64_t> prune_states(const std::string& root, int64_t keep_last,
                                  const std::vector<int64_t>& protected_steps);

// Removes what killed processes left below root (see StagedFolder); call it when a run starts. Returns how
// many.
int64_t sweep_temporary(const std::string& root);

std::string state_name(int64_t step);                              // "step-000123"
std::optional<int64_t> step_of_state_name(std::string_view name);  // the reverse; nothing for other names

}  // namespace temper::checkpoints
