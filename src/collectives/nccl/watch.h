#pragma once
#include <cuda_runtime_api.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/waited.h"
#include "collectives/nccl/library.h"

namespace temper::collectives {

// Ends the process where a network of GPUs is not made, or collectives that were asked for do not end, within
// the deadline, or the network reports an error: the host that waits for its GPU can do nothing else.
class Watch {
 public:
  // Of a network that is being made. `deadline`: in seconds, as it is whenever the watch looks.
  Watch(int gpu, std::shared_ptr<const std::atomic<double>> deadline);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  void made(ncclComm_t network);
  // After work was given to the stream.
  void add(cudaStream_t stream, std::string what);

 private:
  struct Work {
    cudaEvent_t done;
    std::string what;
    double since;  // of waited_
  };
  void run();
  void look();
  [[noreturn]] static void end(const std::string& why);

  const int gpu_;
  const std::shared_ptr<const std::atomic<double>> deadline_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Waited waited_;
  ncclComm_t network_ = nullptr;
  std::deque<Work> works_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace temper::collectives
