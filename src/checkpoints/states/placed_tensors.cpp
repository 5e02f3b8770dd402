#include "checkpoints/states/placed_tensors.h"

#include "base/error.h"
#include "collectives/kept_errors.h"

namespace temper::checkpoints {
namespace {

// One part after the other, from the first rank that holds it, so that no rank has more than the whole and a
// part. Where it is not `wanted`, there is no whole, and only the parts pass by. `begin`: called when there
// is memory for it, before the first part is sent.
Tensor gather(
    const PlacedTensor& tensor, collectives::Group& ranks, bool wanted,
    const std::function<void()>& begin = [] {}) {
  const Placement& placement = *tensor.placement;
  invariant(
      placement.rank_of(placement.parts() - 1) < ranks.size(),
      fmt::format("'{}' has {} parts, but there are {} ranks", tensor.name, placement.parts(), ranks.size()));
  // Elements of a cut tensor go to many places, one by one: on the CPU.
  const Device device = placement.is_flat() ? Device{} : tensor.own.device();
  const Tensor whole =
      wanted ? Tensor::empty(placement.whole(), tensor.own.dtype(), MemoryTag::kWorkspace, device) : Tensor();
  const Tensor others = Tensor::empty(placement.shape_of_part(), tensor.own.dtype(), MemoryTag::kWorkspace,
                                      tensor.own.device());
  begin();
  for (int part = 0; part < placement.parts(); ++part) {
    const int holder = placement.rank_of(part);
    const Tensor& held = ranks.rank() == holder ? tensor.own : others;
    ranks.broadcast(tensor.name, held, holder);
    if (wanted) put_part(placement, held.on(device, MemoryTag::kWorkspace), part, whole);
  }
  return whole;
}

}  // namespace

Tensor whole_of(const PlacedTensor& tensor, collectives::Group& ranks) {
  return tensor.placement->is_whole() ? tensor.own : gather(tensor, ranks, true);
}

void with_whole(
    collectives::Group& ranks, const std::vector<PlacedTensor>& tensors,
    const std::function<void(const collectives::Root&, const std::function<Tensor(size_t)>&)>& use) {
  constexpr const char* kName = "the tensor to gather";
  const std::string done = "done";
  collectives::KeptErrors kept(ranks);
  kept.at_root([&](const collectives::Root& root) {
    use(root, [&](size_t i) {
      if (tensors[i].placement->is_whole()) return tensors[i].own;
      return gather(tensors[i], ranks, true, [&] { ranks.broadcast_object(kName, std::to_string(i), 0); });
    });
  });
  if (ranks.rank() == 0) {
    ranks.broadcast_object(kName, done, 0);
  } else {
    for (std::string next = ranks.broadcast_object(kName, "", 0); next != done;
         next = ranks.broadcast_object(kName, "", 0))
      gather(tensors[std::stoul(next)], ranks, false);
  }
  kept.raise("what was gathered");
}

}  // namespace temper::checkpoints
