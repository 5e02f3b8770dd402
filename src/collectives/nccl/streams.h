#pragma once
#include <cuda_runtime_api.h>

#include "device/device.h"

namespace temper::collectives {

void check_cuda(cudaError_t error, const char* call);  // of kind kResources

// Where a group puts its work on its GPU: on the stream of the rank's own work, in order with it, while
// collectives overlap on a second one, and transfers that are begun on a third one. What is put on the others
// comes after the rank's work that was launched before.
class GroupStreams {
 public:
  explicit GroupStreams(Device gpu);
  ~GroupStreams();
  GroupStreams(const GroupStreams&) = delete;
  GroupStreams& operator=(const GroupStreams&) = delete;

  cudaStream_t for_collective() const;  // the next one
  cudaStream_t for_transfer();
  void begin_overlap() { overlaps_ = true; }
  void end_overlap();  // work that is launched later comes after the overlapped collectives
  bool overlaps() const { return overlaps_; }
  void use_own();            // for overlapped collectives a stream that is no other group's
  void synchronize() const;  // the host, with all of them

 private:
  cudaStream_t behind_work(cudaStream_t other) const;

  const Device gpu_;
  cudaStream_t overlapped_ = nullptr, of_transfers_ = nullptr;
  cudaEvent_t order_ = nullptr;
  bool overlaps_ = false;
};

}  // namespace temper::collectives
