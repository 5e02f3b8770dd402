#include "checkpoints/placed_tensors.h"

#include <exception>

#include "base/error.h"
#include "collectives/at_root.h"

namespace temper::checkpoints {

// Of several replicas the first one's parts are taken; all have the same.
Tensor whole_of(const PlacedTensor& tensor, collectives::Group& ranks) {
  const Placement& placement = *tensor.placement;
  if (placement.is_whole()) return tensor.own;
  invariant(
      placement.rank_of(placement.parts() - 1) < ranks.size(),
      fmt::format("'{}' has {} parts, but there are {} ranks", tensor.name, placement.parts(), ranks.size()));
  // Elements of a cut tensor go to many places, one by one: on the CPU.
  const Tensor gathered = ranks.all_gather(tensor.name, tensor.own);
  const Tensor all = placement.is_flat() ? gathered.on({}, MemoryTag::kWorkspace) : gathered;
  const Tensor whole =
      Tensor::empty(placement.whole(), tensor.own.dtype(), MemoryTag::kWorkspace, all.device());
  const int64_t rows = tensor.own.dim(0);
  for (int part = 0; part < placement.parts(); ++part)
    placement.put_part(all.narrow(0, placement.rank_of(part) * rows, rows), part, whole);
  return whole;
}

void with_whole(collectives::Group& ranks, const std::vector<PlacedTensor>& tensors,
                const std::function<void(const std::function<Tensor(size_t)>&)>& use) {
  constexpr const char* kName = "the tensor to gather";
  const std::string done = "done";
  std::exception_ptr error;
  if (ranks.rank() == 0) {
    try {
      use([&](size_t i) {
        if (tensors[i].placement->is_whole()) return tensors[i].own;
        ranks.broadcast_object(kName, std::to_string(i), 0);
        return whole_of(tensors[i], ranks);
      });
    } catch (...) {
      error = std::current_exception();
    }
    ranks.broadcast_object(kName, done, 0);
  } else {
    for (std::string next = ranks.broadcast_object(kName, "", 0); next != done;
         next = ranks.broadcast_object(kName, "", 0))
      whole_of(tensors[std::stoul(next)], ranks);
  }
  collectives::at_root(ranks, "what was gathered", [&] {
    if (error) std::rethrow_exception(error);
  });
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
