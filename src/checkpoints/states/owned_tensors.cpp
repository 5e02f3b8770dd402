#include "checkpoints/states/owned_tensors.h"

#include "base/error.h"
#include "base/threads/threads.h"
#include "checkpoints/files/element_runs.h"

namespace temper::checkpoints {
namespace {

int64_t count_of(const std::vector<Slice>& runs) {
  int64_t count = 0;
  for (const Slice& run : runs) count += run.count;
  return count;
}

// Neighbours that follow one another in both, as one.
std::vector<Slice> joined(const std::vector<Slice>& runs) {
  std::vector<Slice> all;
  for (const Slice& run : runs)
    if (!all.empty() && all.back().whole + all.back().count == run.whole &&
        all.back().own + all.back().count == run.own)
      all.back().count += run.count;
    else
      all.push_back(run);
  return all;
}

}  // namespace

OwnedTensors::OwnedTensors(const std::vector<PlacedTensor>& tensors, int rank) {
  for (const PlacedTensor& tensor : tensors) {
    const Placement& placement = *tensor.placement;
    if (placement.rank_of(placement.part()) != rank)
      continue;  // another replica's, or on no rank of this stage
    if (placement.has_whole()) {
      add(tensor.name, tensor.own);
      continue;
    }
    std::vector<Slice> runs = joined(owned_runs(placement));
    const int64_t count = count_of(runs);
    if (count == 0) continue;
    infos_.push_back({tensor.name, {count}, tensor.own.dtype()});
    metadata_.emplace_back(tensor.name, format_elements(placement.whole(), runs));
    if (count == placement.own().numel()) runs.clear();
    owned_.push_back({tensor.own, std::move(runs)});
  }
}

void OwnedTensors::add(const std::string& name, const Tensor& tensor) {
  infos_.push_back({name, tensor.shape(), tensor.dtype()});
  owned_.push_back({tensor, {}});
}

int64_t OwnedTensors::bytes() const {
  int64_t bytes = 0;
  for (const TensorInfo& info : infos_) bytes += info.shape.numel() * size_of(info.dtype);
  return bytes;
}

Tensor OwnedTensors::compact(const Owned& owned, const TensorInfo& info) const {
  if (owned.runs.empty()) return owned.own.contiguous(MemoryTag::kWorkspace).reshape(info.shape);
  const Tensor row = owned.own.reshape({owned.own.numel()}),
               all = Tensor::empty(info.shape, info.dtype, MemoryTag::kWorkspace, row.device());
  int64_t at = 0;
  for (const Slice& run : owned.runs) {
    all.narrow(0, at, run.count).copy_from(row.narrow(0, run.own, run.count));
    at += run.count;
  }
  return all;
}

void OwnedTensors::copy() {
  const auto copy_one = [&](int64_t i) {
    Owned& owned = owned_[static_cast<size_t>(i)];
    const TensorInfo& info = infos_[static_cast<size_t>(i)];
    const Tensor here = Tensor::empty(info.shape, info.dtype, MemoryTag::kData);
    here.copy_from(compact(owned, info));
    owned = {here, {}};
  };
  const auto count = static_cast<int64_t>(owned_.size());
  if (!owned_.empty() && owned_.front().own.device().type == DeviceType::kCpu)
    return parallel_for(count, copy_one);
  for (int64_t i = 0; i < count; ++i) copy_one(i);
}

void OwnedTensors::add_to(StateWriter& writer, std::string_view stem, int rank, int ranks,
                          const std::atomic<bool>& given_up) {
  if (empty()) return;
  const std::string name =
      ranks == 1 ? fmt::format("{}.safetensors", stem) : fmt::format("{}-{:05}.safetensors", stem, rank);
  size_t written = 0;
  writer.add_tensors(
      name, infos_,
      [&](size_t i) {
        if (given_up) fail("[{}] was given up, as the run ended", name);
        for (; written < i; ++written) owned_[written] = {};
        return compact(owned_[i], infos_[i]);
      },
      metadata_);
  owned_.clear();
}

}  // namespace temper::checkpoints
