#pragma once
#include <cuda_runtime_api.h>

#include <functional>
#include <string>
#include <vector>

#include "collectives/group.h"
#include "collectives/nccl/library.h"

namespace temper::collectives {

// Transfers between GPUs. Those of exchange() go where the group's collectives go, so that they run in order
// with them; others to a stream of their own.
class NcclPairs final : public Pairs {
 public:
  using Work = std::function<ncclResult_t(ncclComm_t network, cudaStream_t on)>;
  // What the group does for its transfers.
  struct Door {
    std::function<void()> connect;  // with all ranks, which all do it
    // Gives work to the stream: on a network that is connected, as only two ranks come. The tensors, of any
    // shape, live until later work of the device's stream comes after it.
    std::function<void(const std::string& what, const std::vector<Tensor>& tensors, const Work& work)> give;
    // The same to the stream of transfers, where it begins after the device's work so far.
    std::function<std::unique_ptr<TransfersUnderWay>(const std::string& what, std::vector<Tensor> tensors,
                                                     const Work& work)>
        begin;
  };
  // Ranks compare their calls over `hosts`.
  NcclPairs(const Group& group, Group& hosts, Device gpu, Door door)
      : Pairs(group), hosts_(hosts), gpu_(gpu), door_(std::move(door)) {}

 private:
  void do_connect(const std::vector<int>& partners) override;
  void do_exchange(const PairCalls& calls) override;
  std::unique_ptr<TransfersUnderWay> do_begin(const PairCalls& calls) override;
  void check(const PairCalls& calls) const;
  void give(const PairCalls& calls) const;
  void compare(const PairCalls& calls) const;

  Group& hosts_;
  const Device gpu_;
  const Door door_;
};

}  // namespace temper::collectives
