#include "base/error.h"
#include "checkpoints/files/names.h"
#include "checkpoints/files/safetensors_header.h"

namespace temper::checkpoints {
namespace {

// The map is only aligned as far as the file's author took care.
bool is_aligned(const std::byte* data, DType dtype) {
  return reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(size_of(dtype)) == 0;
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::string& path) {
  auto contents = std::make_shared<Contents>(path);
  SafetensorsHeader header = parse_safetensors_header(contents->map.text(), path);
  contents->data = contents->map.data() + header.data_start;
  contents->entries = std::move(header.entries);
  contents->metadata = std::move(header.metadata);
  contents->by_name.reserve(contents->entries.size());
  for (size_t i = 0; i < contents->entries.size(); ++i)
    contents->by_name.emplace(contents->entries[i].name, i);
  contents_ = std::move(contents);
}

const TensorEntry* SafetensorsFile::find(std::string_view name) const {
  const auto found = contents_->by_name.find(name);
  return found == contents_->by_name.end() ? nullptr : &contents_->entries[found->second];
}

Tensor SafetensorsFile::tensor(std::string_view name) const {
  const TensorEntry* entry = find(name);
  if (entry == nullptr) {
    std::vector<std::string> names;
    for (const TensorEntry& each : entries()) names.push_back(each.name);
    fail("[{}] tensor '{}': not in this file of {} tensors; the nearest name is '{}'", path(), name,
         names.size(), nearest_tensor(name, names));
  }
  const std::optional<DType> dtype = supported_dtype(*entry);
  if (!dtype)
    fail(
        "[{}] tensor '{}': found dtype {}, expected F32, BF16, F16, F8_E4M3, I32, I64, I8 or U8; convert it "
        "first",
        path(), name, entry->dtype);
  if (entry->shape.size() > Shape::kMaxDims)
    fail("[{}] tensor '{}': found {} dimensions, expected at most {}; reshape it first", path(), name,
         entry->shape.size(), Shape::kMaxDims);
  contents_->map.check_unchanged();
  const Shape shape(entry->shape);
  const std::byte* data = contents_->data + entry->begin;
  if (entry->begin == entry->end) return Tensor::empty(shape, *dtype, MemoryTag::kData);
  if (is_aligned(data, *dtype)) return Tensor::borrow(data, shape, *dtype, contents_);
  const Tensor copy = Tensor::empty(shape, *dtype, MemoryTag::kData);
  copy.copy_from_host(data, copy.bytes());
  return copy;
}

const std::byte* SafetensorsFile::bytes(const TensorEntry& entry) const {
  contents_->map.check_unchanged();
  return contents_->data + entry.begin;
}

void SafetensorsFile::release(const Tensor& view) const {
  const auto* at = static_cast<const std::byte*>(view.raw());
  const MappedFile& map = contents_->map;
  if (at < map.data() || at >= map.data() + map.size()) return;  // a copy
  const auto begin = static_cast<size_t>(at - map.data());
  map.release(begin, begin + static_cast<size_t>(view.bytes()));
}

void SafetensorsFile::release(const TensorEntry& entry) const {
  const int64_t start = contents_->data - contents_->map.data();
  contents_->map.release(static_cast<size_t>(start + entry.begin), static_cast<size_t>(start + entry.end));
}

}  // namespace temper::checkpoints
