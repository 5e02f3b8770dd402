#include "tensor/host_inputs.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace temper {
namespace {

constexpr int64_t kSmallestPage = 256 << 10, kAlignment = 256;

thread_local HostInputs* recorder = nullptr;

Tensor bring_once(const Shape& shape, DType dtype, Device device, const HostInputs::Write& write) {
  const Tensor here = Tensor::empty(shape, dtype, MemoryTag::kWorkspace);
  write(static_cast<std::byte*>(here.raw()));
  return here.on(device);
}

}  // namespace

HostInputs::Scope::Scope(HostInputs& inputs, bool captured) : before_(std::exchange(recorder, &inputs)) {
  inputs.captured_ = captured;
}
HostInputs::Scope::~Scope() { recorder = before_; }

bool HostInputs::recording() { return recorder != nullptr; }

void HostInputs::forget() {
  for (Page& page : pages_) page.used = 0;
  inputs_.clear();
  named_.clear();
  granted_.clear();
}

bool HostInputs::hold() const {
  return std::all_of(granted_.begin(), granted_.end(), [](const auto& entry) { return entry.second(); });
}

void HostInputs::upload() {
  for (const Input& input : inputs_) input.write(pages_[input.page].here.data() + input.offset);
  for (const Page& page : pages_)
    if (page.used > 0) page.there.narrow(0, 0, page.used).copy_from_host(page.here.data(), page.used);
}

Tensor HostInputs::add(const Shape& shape, DType dtype, Write write) {
  const int64_t bytes = shape.numel() * size_of(dtype);
  const int64_t room = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  const auto fits = [&](const Page& page) { return page.used + room <= page.there.numel(); };
  auto page = std::find_if(pages_.begin(), pages_.end(), fits);
  if (page == pages_.end()) {
    // On a device a few large copies are the best; the CPU would clear a large page for some numbers.
    const bool on_cpu = device_.type == DeviceType::kCpu;
    const int64_t size = std::max(room, on_cpu ? kAlignment : kSmallestPage);
    pages_.push_back({Tensor::empty({size}, DType::kU8, MemoryTag::kData, device_),
                      std::vector<std::byte>(static_cast<size_t>(size))});
    page = pages_.end() - 1;
  }
  inputs_.push_back({static_cast<size_t>(page - pages_.begin()), page->used, std::move(write)});
  page->used += room;
  if (!captured_) bring(inputs_.back(), bytes);
  return page->there.bytes_as(inputs_.back().offset, shape, dtype);
}

void HostInputs::bring(const Input& input, int64_t bytes) {
  Page& page = pages_[input.page];
  std::byte* here = page.here.data() + input.offset;
  input.write(here);
  if (bytes > 0) page.there.narrow(0, input.offset, bytes).copy_from_host(here, bytes);
}

Tensor from_host(const std::string& name, const Shape& shape, DType dtype, Device device,
                 HostInputs::Write write) {
  if (recorder == nullptr || recorder->device_ != device) return bring_once(shape, dtype, device, write);
  Tensor& found = recorder->named_[name];
  if (!found.defined()) found = recorder->add(shape, dtype, std::move(write));
  invariant(found.shape() == shape && found.dtype() == dtype, "one name for two inputs: " + name);
  return found;
}

Tensor from_host(const Tensor& tensor, Device device) {
  if (tensor.device() == device) return tensor;
  invariant(tensor.device().type == DeviceType::kCpu, "an input of the host is on the CPU");
  return from_host(name_of(tensor), tensor.shape(), tensor.dtype(), device, [tensor](std::byte* to) {
    std::memcpy(to, tensor.raw(), static_cast<size_t>(tensor.bytes()));
  });
}

Tensor from_host(const HostValue<float>& value, Device device) {
  return from_host(fmt::format("value {}", value.id()), {1}, DType::kF32, device, [value](std::byte* to) {
    const float now = value;
    std::memcpy(to, &now, sizeof(now));
  });
}

void take_for_granted(const std::string& name, std::function<bool()> holds) {
  if (recorder != nullptr) recorder->granted_.try_emplace(name, std::move(holds));
}

std::string name_of(const Tensor& tensor) {
  return fmt::format("{} {} {}", tensor.raw(), to_string(tensor.shape()), to_string(tensor.dtype()));
}

}  // namespace temper
