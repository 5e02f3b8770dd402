#pragma once
#include "device/cuda/driver.h"
#include "device/device.h"
#include "device/last_uses.h"

namespace temper::device {

inline constexpr int kMaxGpus = 8;     // of one machine that have numbers of their own
inline constexpr int kMaxStreams = 4;  // of one GPU
int num_gpus();                        // visible ones; throws as driver() does
// Refuses a GPU that kernels are not written for.
void require_supported(int index);

// The stream on which the calling thread's work on a GPU goes, in the order in which it is asked for: the one
// that all threads share, unless a StreamScope chose another. Memory of the pool may be reused as soon as its
// last user has been launched: across streams the pool lets work wait (device/last_uses.h). Makes the GPU
// current for the calling thread; the first call refuses GPUs that kernels are not written for.
cudaStream_t stream(Device device);

// While one lives, the calling thread's work on this GPU goes to stream `index` (1 to kMaxStreams - 1),
// concurrent with that of stream 0. A stream's first work waits for all earlier work of the GPU; after that
// only join(), copies between devices and memory that changes hands order streams. Whoever uses on one stream
// what was allocated on another says so (Pool::used).
class StreamScope {
 public:
  StreamScope(Device gpu, int index);
  ~StreamScope();
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;
  // Later work on the stream outside waits for what was asked of this one.
  void join();

 private:
  const Device gpu_;
  const int index_, outside_;
};

// For the GPU's pool, and for who must know whether there is more than one.
Streams& streams(int gpu);

int multiprocessors(Device device);

// After a launch: what was wrong with it, as an error that names the kernel.
void check_launch(const char* kernel);

}  // namespace temper::device
