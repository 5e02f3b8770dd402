#include "tensor/repeated_work.h"

namespace temper {

RepeatedWork::RepeatedWork(Device device, bool captured, std::function<void()> work)
    : device_(device), work_(std::move(work)) {
  if (captured && device.type != DeviceType::kCpu) arena_.emplace(device);
}

void RepeatedWork::run() {
  if (!arena_) return work_();
  if (graph_ != nullptr) return graph_->run();
  const Arena::Scope scope(*arena_);
  if (prepared_) graph_ = capture(device_, work_);
  if (graph_ != nullptr) return graph_->run();
  work_();
  prepared_ = true;
}

}  // namespace temper
