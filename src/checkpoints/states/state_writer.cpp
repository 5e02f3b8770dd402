#include "base/error.h"
#include "checkpoints/files/manifest.h"
#include "checkpoints/files/names.h"
#include "checkpoints/states/training_state.h"

namespace temper::checkpoints {

std::string state_name(int64_t step) {
  invariant(step >= 0, fmt::format("a state of step {}", step));
  return fmt::format("step-{:06}", step);
}

StateWriter::StateWriter(const std::string& root, int64_t step)
    : step_(step), target_(join_path(root, state_name(step))), folder_(target_) {}

StateWriter::StateWriter(const std::string& root, int64_t step, const StagedOwner& owner)
    : step_(step), target_(join_path(root, state_name(step))), folder_(target_, owner) {}

std::string StateWriter::begin_file(const std::string& file_name) {
  invariant(open_, fmt::format("[{}] is committed, or a file of it failed", target_));
  invariant(is_plain_name(file_name) && file_name != kManifestName && !files_.contains(file_name),
            fmt::format("[{}] '{}' is taken or not a plain file name", target_, file_name));
  open_ = false;
  return folder_ / file_name;
}

void StateWriter::end_file(const std::string& file_name, FileDigest digest) {
  files_[file_name] = std::move(digest);
  open_ = true;
}

void StateWriter::add_tensors(const std::string& file_name, std::vector<TensorInfo> tensors,
                              const std::function<Tensor(size_t)>& source, const Metadata& metadata) {
  const std::string path = begin_file(file_name);
  require_free_disk(path, safetensors_bytes(tensors, metadata));
  const size_t count = tensors.size();
  SafetensorsWriter writer(path, std::move(tensors), metadata);
  for (size_t i = 0; i < count; ++i) writer.add(source(i));
  end_file(file_name, writer.close());
}

void StateWriter::add_json(const std::string& file_name, const Json& value) {
  const std::string text = value.dump(2) + "\n";
  try {
    Json::parse(text, file_name);  // what cannot be read back must not be written
  } catch (const Error& error) {
    fail("{}; found while writing it: store finite numbers and valid UTF-8 only", error.what());
  }
  add_file(file_name, text);
}

void StateWriter::add_file(const std::string& file_name, std::string_view data) {
  HashedFile file(begin_file(file_name));
  file.write(data);
  end_file(file_name, file.close());
}

void StateWriter::add_written(const FileDigests& files) {
  check_sizes(folder_.path(), {step_, files});
  for (const auto& [name, digest] : files)
    invariant(files_.emplace(name, digest).second, fmt::format("[{}] '{}' was written twice", target_, name));
}

std::string StateWriter::commit() {
  invariant(open_, fmt::format("[{}] is committed, or a file of it failed", target_));
  open_ = false;
  write_manifest(folder_.path(), {step_, files_});
  folder_.commit();
  return target_;
}

}  // namespace temper::checkpoints
