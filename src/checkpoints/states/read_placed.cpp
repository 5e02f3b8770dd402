// Reading what a rank needs from the files of a state, whoever wrote which.
#include <algorithm>
#include <cstring>
#include <map>

#include "base/error.h"
#include "checkpoints/files/element_runs.h"
#include "checkpoints/files/names.h"
#include "checkpoints/states/owned_tensors.h"

namespace temper::checkpoints {
namespace {

// "optimizer.safetensors", "optimizer-00003.safetensors"
bool is_of_stem(std::string_view file, std::string_view stem) {
  constexpr std::string_view kSuffix = ".safetensors";
  if (!file.starts_with(stem) || !file.ends_with(kSuffix)) return false;
  file.remove_prefix(stem.size());
  file.remove_suffix(std::min(file.size(), kSuffix.size()));
  return file.empty() || (file.size() > 1 && file[0] == '-' &&
                          file.find_first_not_of("0123456789", 1) == std::string_view::npos);
}

// A tensor of one file, and which elements of the whole it has.
struct Stored {
  const SafetensorsFile* file = nullptr;
  const TensorEntry* entry = nullptr;
  const std::string* elements = nullptr;  // null: all of them
};

HeldElements elements_of(const Stored& stored) {
  int64_t count = 1;
  for (const int64_t size : stored.entry->shape) count *= size;
  if (stored.elements == nullptr) {
    if (stored.entry->shape.size() > Shape::kMaxDims)
      fail("[{}] '{}' has {} dimensions, expected at most {}", stored.file->path(), stored.entry->name,
           stored.entry->shape.size(), Shape::kMaxDims);
    return {Shape(stored.entry->shape), {{0, 0, count}}};
  }
  try {
    return parse_elements(*stored.elements, count);
  } catch (const Error& error) {
    fail("[{}] the elements of '{}': {}", stored.file->path(), stored.entry->name, error.what());
  }
}

// Elements in a row of the whole, where they lie in memory.
struct Found {
  int64_t first = 0, count = 0;
  const std::byte* bytes = nullptr;
};

class StateFiles {
 public:
  StateFiles(const StateReader& state, std::string_view stem) : path_(state.path()) {
    for (const std::string& name : state.files())
      if (is_of_stem(name, stem)) files_.push_back(state.tensors(name));
    if (files_.empty()) state.tensors(fmt::format("{}.safetensors", stem));  // for its error
    for (const SafetensorsFile& file : files_) {
      std::map<std::string_view, const std::string*> elements;
      for (const auto& [name, text] : file.metadata()) elements[name] = &text;
      for (const TensorEntry& entry : file.entries()) {
        const auto found = elements.find(entry.name);
        stored_[entry.name].push_back({&file, &entry, found == elements.end() ? nullptr : found->second});
      }
    }
  }

  void read(const PlacedTensor& tensor) const {
    const std::vector<Stored>& all = stored_of(tensor.name);
    const DType dtype = dtype_of(all);
    const std::vector<Found> found = find(all, tensor);
    const Placement& placement = *tensor.placement;
    const bool direct = tensor.own.device().type == DeviceType::kCpu && tensor.own.is_contiguous() &&
                        tensor.own.dtype() == dtype;
    const Tensor here = direct ? tensor.own : Tensor::empty(placement.own(), dtype, MemoryTag::kWorkspace);
    for (const Slice& run : placement.runs(placement.part())) copy_run(found, run, tensor.name, here);
    if (!direct) tensor.own.copy_from(here);
    for (const Stored& stored : all) stored.file->release(*stored.entry);
  }

 private:
  const std::vector<Stored>& stored_of(const std::string& name) const {
    const auto found = stored_.find(name);
    if (found != stored_.end()) return found->second;
    std::vector<std::string> names;
    for (const auto& [each, stored] : stored_) names.emplace_back(each);
    fail("[{}] has no tensor '{}'; the nearest name is '{}'", path_, name, nearest_tensor(name, names));
  }

  static DType dtype_of(const std::vector<Stored>& all) {
    const TensorEntry& first = *all.front().entry;
    const std::optional<DType> dtype = supported_dtype(first);
    for (const Stored& stored : all)
      if (!dtype || stored.entry->dtype != first.dtype)
        fail("[{}] '{}' is {}, expected {}", stored.file->path(), first.name, stored.entry->dtype,
             dtype ? first.dtype : "a dtype that Temper has");
    return *dtype;
  }

  // In their order; no element is in two files.
  std::vector<Found> find(const std::vector<Stored>& all, const PlacedTensor& tensor) const {
    std::vector<Found> found;
    for (const Stored& stored : all) {
      const HeldElements held = elements_of(stored);
      if (held.whole != tensor.placement->whole())
        fail("[{}] '{}' is {}, expected {}", stored.file->path(), tensor.name, to_string(held.whole),
             to_string(tensor.placement->whole()));
      const std::byte* bytes = stored.file->bytes(*stored.entry);
      const int64_t size = size_of(dtype_of({stored}));
      for (const Slice& run : held.runs) found.push_back({run.whole, run.count, bytes + run.own * size});
    }
    std::sort(found.begin(), found.end(), [](const Found& a, const Found& b) { return a.first < b.first; });
    for (size_t i = 1; i < found.size(); ++i)
      if (found[i - 1].first + found[i - 1].count > found[i].first)
        fail("[{}] two files have element {} of '{}'", path_, found[i].first, tensor.name);
    return found;
  }

  void copy_run(const std::vector<Found>& found, const Slice& run, const std::string& name,
                const Tensor& to) const {
    const int64_t size = size_of(to.dtype()), end = run.whole + run.count;
    auto next = std::upper_bound(found.begin(), found.end(), run.whole,
                                 [](int64_t at, const Found& each) { return at < each.first; });
    if (next != found.begin()) --next;
    for (int64_t at = run.whole; at < end; ++next) {
      if (next == found.end() || next->first > at || next->first + next->count <= at)
        fail("[{}] no file has element {} of '{}': the files of a rank are missing", path_, at, name);
      const int64_t until = std::min(end, next->first + next->count);
      std::memcpy(static_cast<std::byte*>(to.raw()) + (run.own + at - run.whole) * size,
                  next->bytes + (at - next->first) * size, static_cast<size_t>((until - at) * size));
      at = until;
    }
  }

  std::string path_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string_view, std::vector<Stored>> stored_;
};

}  // namespace

void read_placed(const StateReader& state, std::string_view stem, const std::vector<PlacedTensor>& tensors) {
  const StateFiles files(state, stem);
  for (const PlacedTensor& tensor : tensors)
    if (tensor.placement->is_here()) files.read(tensor);
}

}  // namespace temper::checkpoints
