#pragma once
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <map>
#include <mutex>

#include "device/memory.h"
#include "device/sharing.h"
#include "device/transfer.h"
#include "exchange/exchange_fixture.h"
#include "tensor/device_functions.h"

// A device with memory of its own and without a UUID, as rooms for Ascend NPUs have to offer it: its memory
// is the CPU's, in files without names, and no function of the CPU is called with it.
namespace temper::exchange {

inline constexpr Device kNpu{DeviceType::kNpu, 0};

class NpuPool final : public Pool {
 public:
  struct Block {
    int file = -1;
    int64_t bytes = 0;
  };
  void* allocate(int64_t bytes, MemoryTag) override {
    const std::lock_guard lock(mutex_);
    const int64_t mapped = std::max<int64_t>(bytes, 1);
    const int file = ::memfd_create("npu", MFD_CLOEXEC);
    if (::ftruncate(file, mapped) != 0) fail_resources("no memory");
    void* const memory =
        ::mmap(nullptr, static_cast<size_t>(mapped), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    blocks_[memory] = {file, mapped};
    live_ += mapped;
    peak_ = std::max(peak_, live_);
    return memory;
  }
  void release(void* memory, MemoryTag) noexcept override {
    const std::lock_guard lock(mutex_);
    const Block block = blocks_.extract(memory).mapped();
    ::munmap(memory, static_cast<size_t>(block.bytes));
    ::close(block.file);
    live_ -= block.bytes;
  }
  void used(void*, MemoryTag) override {}
  void pause(MemoryTag, PauseMode) override {}
  void resume(MemoryTag) override {}
  MemoryUsage usage() const override { return {}; }
  void reset_peak() override { peak_ = live_; }
  int64_t peak_live() const override { return peak_; }
  int64_t peak_held() const override { return peak_; }
  void set_limit(int64_t) override {}
  int64_t limit() const override { return 0; }
  int64_t live() const { return live_; }
  Block at(const void* memory) { return blocks_.at(const_cast<void*>(memory)); }

 private:
  std::mutex mutex_;
  std::map<void*, Block> blocks_;
  int64_t live_ = 0, peak_ = 0;
};

inline NpuPool& npu_pool() {
  static NpuPool& pool = *new NpuPool;
  return pool;
}
inline int npu_number = 3;  // the machine's, of the one that this process is shown

inline std::atomic<int> npu_imports = 0;  // that there are now

class NpuImport final : public device::ImportedBlock {
 public:
  explicit NpuImport(const device::SharedBlock& block)
      : bytes_(static_cast<size_t>(block.bytes)),
        data_(::mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, block.chunks.at(0).get(), 0)) {
    ++npu_imports;
  }
  ~NpuImport() override {
    ::munmap(data_, bytes_);
    --npu_imports;
  }
  NpuImport(const NpuImport&) = delete;
  NpuImport& operator=(const NpuImport&) = delete;
  void* data() const override { return data_; }

 private:
  size_t bytes_;
  void* data_;
};

// Element by element, in any order of strides.
inline void npu_copy(const Tensor& to, const Tensor& from) {
  std::vector<int64_t> index(static_cast<size_t>(to.ndim()), 0);
  visit_float(to.dtype(), [&]<class To>() {
    visit_float(from.dtype(), [&]<class From>() {
      for (int64_t i = 0; i < to.numel(); ++i) {
        int64_t left = i, at = 0, source = 0;
        for (int d = to.ndim() - 1; d >= 0; --d) {
          const int64_t place = left % to.dim(d);
          left /= to.dim(d);
          at += place * to.stride(d);
          source += place * from.stride(d);
        }
        static_cast<To*>(to.raw())[at] = To(static_cast<float>(static_cast<const From*>(from.raw())[source]));
      }
    });
  });
}

inline std::string npu_identity(int) { return fmt::format("npu {}", npu_number); }

inline void register_npu() {
  register_pool(DeviceType::kNpu, [](int) -> Pool& { return npu_pool(); });
  register_device(DeviceType::kNpu,
                  {.transfer = [](void* to, Device, const void* from, Device,
                                  int64_t bytes) { std::memcpy(to, from, static_cast<size_t>(bytes)); },
                   .clear = [](void* memory, Device,
                               int64_t bytes) { std::memset(memory, 0, static_cast<size_t>(bytes)); },
                   .synchronize = [](Device) {}});
  register_tensor_functions(DeviceType::kNpu, {.copy = npu_copy});
  device::register_sharing(
      DeviceType::kNpu,
      {.identity = npu_identity,
       .reaches = [](int index, const std::string& identity) { return identity == npu_identity(index); },
       .export_block =
           [](const void* memory, int64_t bytes) {
             device::SharedBlock block{{}, 0, bytes};
             block.chunks.emplace_back(::dup(npu_pool().at(memory).file));
             return block;
           },
       .import_block = [](Device, const device::SharedBlock& block)
           -> std::unique_ptr<device::ImportedBlock> { return std::make_unique<NpuImport>(block); },
       .checksum = [](Device, const void* memory,
                      int64_t bytes) { return device::checksum_of(memory, bytes); }});
}

}  // namespace temper::exchange
