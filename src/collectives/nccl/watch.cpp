#include "collectives/nccl/watch.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "base/error.h"

namespace temper::collectives {

Watch::Watch(int gpu, std::shared_ptr<const std::atomic<double>> deadline)
    : gpu_(gpu), deadline_(std::move(deadline)), thread_([this] { run(); }) {}

Watch::~Watch() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
  for (const Work& work : works_) cudaEventDestroy(work.done);
}

void Watch::made(ncclComm_t network) {
  const std::lock_guard lock(mutex_);
  network_ = network;
}

void Watch::add(cudaStream_t stream, std::string what) {
  cudaEvent_t done = nullptr;
  if (cudaEventCreateWithFlags(&done, cudaEventDisableTiming) != cudaSuccess ||
      cudaEventRecord(done, stream) != cudaSuccess)
    return;  // a lost GPU, which the next launch reports
  const std::lock_guard lock(mutex_);
  works_.push_back({done, std::move(what), waited_.seconds()});
}

void Watch::end(const std::string& why) {
  std::fprintf(stderr, "temper: [collectives] %s\n", why.c_str());
  std::_Exit(static_cast<int>(ErrorKind::kResources));
}

void Watch::run() {
  cudaSetDevice(gpu_);
  std::unique_lock lock(mutex_);
  while (!ends_) {
    changed_.wait_for(lock, std::chrono::milliseconds(200));
    look();
  }
}

void Watch::look() {
  const double now = waited_.seconds();
  if (network_ == nullptr) {
    if (now > *deadline_)
      end(fmt::format(
          "the network between GPUs is not made within {:.3g} s: another rank did not come, or its GPU "
          "hangs",
          deadline_->load()));
    return;
  }
  // They end in their order.
  while (!works_.empty() && cudaEventQuery(works_.front().done) != cudaErrorNotReady) {
    cudaEventDestroy(works_.front().done);
    works_.pop_front();
  }
  ncclResult_t state = ncclSuccess;
  if (nccl().comm_get_async_error(network_, &state) == ncclSuccess && state != ncclSuccess &&
      state != ncclInProgress)
    end(fmt::format("the network between GPUs reports: {}", nccl().get_error_string(state)));
  if (works_.empty() || now - works_.front().since < *deadline_) return;
  end(fmt::format("{} does not end within {:.3g} s: another rank did not come, or its GPU hangs",
                  works_.front().what, deadline_->load()));
}

}  // namespace temper::collectives
