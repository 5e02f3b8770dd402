#pragma once
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "tensor/tensor.h"

namespace temper {

// A number of the CPU that may change between two runs of captured work: copies share what set() writes.
template <class T>
class HostValue {
 public:
  HostValue(T value = {}) : value_(std::make_shared<T>(value)) {}
  operator T() const { return *value_; }
  void set(T value) const { *value_ = value; }
  const void* id() const { return value_.get(); }

 private:
  std::shared_ptr<T> value_;
};

// What work on a device takes from the CPU. A captured graph repeats its launches with the arguments that
// they had, so kernels ask for such things by the functions below: in the Scope of a HostInputs these are
// kept together with how to make them, and copied again before each run; elsewhere they are copied once.
//
// Tensors and values of the CPU are read when they are brought: whoever repeats the work writes what is new
// into the same tensors.
class HostInputs {
 public:
  using Write = std::function<void(std::byte* to)>;

  explicit HostInputs(Device device) : device_(device) {}
  HostInputs(const HostInputs&) = delete;
  HostInputs& operator=(const HostInputs&) = delete;

  // Work of this thread is being recorded: run at once, or captured for later, when nothing can be brought.
  class Scope {
   public:
    Scope(HostInputs& inputs, bool captured);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    HostInputs* before_;
  };

  static bool recording();  // whether this thread is in a scope

  void forget();      // before work is recorded again
  bool hold() const;  // whether all that the recorded work took for granted is so; throws what a check throws
  void upload();      // everything, as it is now

 private:
  friend Tensor from_host(const std::string&, const Shape&, DType, Device, Write);
  friend void take_for_granted(const std::string&, std::function<bool()>);
  struct Input {
    size_t page;
    int64_t offset;
    Write write;
  };
  struct Page {
    Tensor there;  // bytes on the device
    std::vector<std::byte> here;
    int64_t used = 0;
  };
  Tensor add(const Shape& shape, DType dtype, Write write);
  void bring(const Input& input, int64_t bytes);

  Device device_;
  bool captured_ = false;
  std::vector<Page> pages_;
  std::vector<Input> inputs_;
  std::unordered_map<std::string, Tensor> named_;
  std::unordered_map<std::string, std::function<bool()>> granted_;
};

// What `write` makes, on a device. A name says all that it depends on: the same name in one scope is the same
// tensor.
Tensor from_host(const std::string& name, const Shape& shape, DType dtype, Device device,
                 HostInputs::Write write);
Tensor from_host(const Tensor& tensor,
                 Device device);  // of a compact tensor on the CPU; itself where it is there
Tensor from_host(const HostValue<float>& value, Device device);  // [1] float32

// Work that depends on more of the CPU's memory than what it brings, for example on the number of some rows,
// says how to know whether that is still so. Without a scope it is not asked.
void take_for_granted(const std::string& name, std::function<bool()> holds);

// Part of a name: one tensor's memory on the CPU.
std::string name_of(const Tensor& tensor);

}  // namespace temper
