#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/files.h"
#include "checkpoints/files/hashed_file.h"
#include "tensor/tensor.h"

namespace temper::checkpoints {

using Metadata = std::vector<std::pair<std::string, std::string>>;  // of a file: texts by their names

// What the header of a file says about one tensor.
struct TensorEntry {
  std::string name;
  std::string dtype;  // as the format spells it: "BF16"
  std::vector<int64_t> shape;
  int64_t begin = 0, end = 0;  // bytes, counted from the end of the header
};

// A safetensors file, mapped read-only; opening it checks every rule of the format. Every error is an Error
// "[file] tensor 'x': found …, expected …; what to do". Copies share the map.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return contents_->path; }
  const std::vector<TensorEntry>& entries() const {
    return contents_->entries;
  }  // in the order of their data
  const Metadata& metadata() const { return contents_->metadata; }
  const TensorEntry* find(std::string_view name) const;  // null when absent

  // A view of the map, which it keeps alive (a copy where the file misaligns the data for its dtype). Do not
  // write to it. Throws for an unknown name, a dtype that Temper has not, and more than six dimensions.
  Tensor tensor(std::string_view name) const;
  // The bytes of an entry, of any alignment; as long as a copy of this lives. Do not write to them.
  const std::byte* bytes(const TensorEntry& entry) const;
  // What was read of such a view leaves the process's memory; reading it again fetches it again.
  void release(const Tensor& view) const;
  void release(const TensorEntry& entry) const;

 private:
  struct Contents {
    explicit Contents(const std::string& file) : path(file), map(file) {}
    std::string path;
    MappedFile map;
    const std::byte* data = nullptr;  // of the first tensor
    std::vector<TensorEntry> entries;
    Metadata metadata;
    std::unordered_map<std::string_view, size_t> by_name;  // keys live in entries
  };
  std::shared_ptr<const Contents> contents_;
};

// The dtype of an entry, or nothing when Temper has none for it (F64, BOOL, F8_E5M2, …).
std::optional<DType> supported_dtype(const TensorEntry& entry);

// What is to be written.
struct TensorInfo {
  std::string name;
  Shape shape;
  DType dtype = DType::kF32;
};

// Writes one file front to back and holds no tensor. The constructor writes the header, add() takes the
// tensors in the order declared (compacted and brought to the host where that is needed), close() syncs.
class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::string& path, std::vector<TensorInfo> tensors, const Metadata& metadata = {});
  void add(const Tensor& tensor);
  FileDigest close();

 private:
  std::string path_;
  std::vector<TensorInfo> tensors_;
  size_t next_ = 0;
  HashedFile file_;
};

// The exact size of the file that holds these tensors.
int64_t safetensors_bytes(std::span<const TensorInfo> tensors, const Metadata& metadata = {});

}  // namespace temper::checkpoints
