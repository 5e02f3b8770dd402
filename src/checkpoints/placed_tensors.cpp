#include "checkpoints/placed_tensors.h"

#include "base/error.h"

namespace temper::checkpoints {

// Of several replicas the first one's parts are taken; all have the same.
Tensor whole_of(const PlacedTensor& tensor, collectives::Group& ranks) {
  const Placement& placement = *tensor.placement;
  if (placement.is_whole()) return tensor.own;
  invariant(ranks.size() % placement.parts() == 0, fmt::format("'{}' has {} parts, but there are {} ranks",
                                                               tensor.name, placement.parts(), ranks.size()));
  const Tensor all = ranks.all_gather(tensor.name, tensor.own);
  const Tensor whole =
      Tensor::empty(placement.whole(), tensor.own.dtype(), MemoryTag::kWorkspace, tensor.own.device());
  const int64_t rows = tensor.own.dim(0);
  for (int part = 0; part < placement.parts(); ++part)
    placement.put_part(all.narrow(0, part * rows, rows), part, whole);
  return whole;
}

void add_placed(StateWriter* writer, const std::string& file_name, const std::vector<PlacedTensor>& tensors,
                collectives::Group& ranks) {
  const auto whole = [&](size_t i) { return whole_of(tensors[i], ranks); };
  if (writer == nullptr) {
    for (size_t i = 0; i < tensors.size(); ++i) whole(i);
    return;
  }
  std::vector<TensorInfo> infos;
  for (const PlacedTensor& tensor : tensors)
    infos.push_back({tensor.name, tensor.placement->whole(), tensor.own.dtype()});
  writer->add_tensors(file_name, std::move(infos), whole);
}

void read_placed(const SafetensorsFile& file, const std::vector<PlacedTensor>& tensors) {
  for (const PlacedTensor& tensor : tensors) {
    const Tensor whole = file.tensor(tensor.name);
    if (whole.shape() != tensor.placement->whole())
      fail("[{}] '{}' is {}, expected {}", file.path(), tensor.name, to_string(whole.shape()),
           to_string(tensor.placement->whole()));
    tensor.placement->take_own(whole, tensor.own);
  }
}

}  // namespace temper::checkpoints
