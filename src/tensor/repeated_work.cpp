#include "tensor/repeated_work.h"

namespace temper {

RepeatedWork::RepeatedWork(Device device, bool captured, std::function<void()> work)
    : RepeatedWork(device,
                   captured && device.type != DeviceType::kCpu ? std::make_shared<Arena>(device) : nullptr,
                   std::move(work)) {}

RepeatedWork::RepeatedWork(Device device, std::shared_ptr<Arena> arena, std::function<void()> work)
    : device_(device), work_(std::move(work)), arena_(std::move(arena)), inputs_(device) {}

void RepeatedWork::run() {
  if (!arena_) return work_();
  const bool again = prepared();
  if (!again) {
    graph_ = nullptr;
    prepared_ = false;
    inputs_.forget();
  } else if (graph_ == nullptr) {
    capture_work();
  }
  if (graph_ != nullptr) {
    inputs_.upload();
    return graph_->run();
  }
  if (again) inputs_.forget();
  const Arena::Scope arena(*arena_);
  const HostInputs::Scope inputs(inputs_, false);
  work_();
  prepared_ = true;
}

void RepeatedWork::capture_work() {
  inputs_.forget();
  prepared_ = false;  // should it fail
  const Arena::Scope arena(*arena_);
  const HostInputs::Scope inputs(inputs_, true);
  graph_ = capture(device_, work_);
  prepared_ = true;
}

}  // namespace temper
