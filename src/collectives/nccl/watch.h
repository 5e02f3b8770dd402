#pragma once
#include <cuda_runtime_api.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

#include "collectives/nccl/library.h"

namespace temper::collectives {

// Ends the process where collectives that were asked for do not end within the deadline, or the network
// reports an error: the host that waits for its GPU can do nothing else.
class Watch {
 public:
  Watch(ncclComm_t network, int gpu);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  void set_deadline(double seconds);
  // After work was given to the stream.
  void add(cudaStream_t stream, std::string what);

 private:
  struct Work {
    cudaEvent_t done;
    std::string what;
    double since;
  };
  void run();
  [[noreturn]] static void end(const std::string& why);

  const ncclComm_t network_;
  const int gpu_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Work> works_;
  double deadline_ = 600;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace temper::collectives
