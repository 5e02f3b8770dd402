#include "device/cuda/sharing.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "device/cuda/events.h"
#include "device/cuda/region.h"
#include "device/cuda/stream.h"

namespace temper::device {
namespace {

// Linux passes at most 253 descriptors in one message.
constexpr size_t kMostDescriptors = 128;

struct Header {
  int64_t offset = 0, bytes = 0, chunks = 0;
};

[[noreturn]] void fail_socket(const char* action) {
  fail("[cuda] a block of memory cannot be {} over a socket: {}", action, std::strerror(errno));
}

// One message: the header, with some of the descriptors.
struct Message {
  Message(Header& header, size_t descriptors) {
    part.iov_base = &header;
    part.iov_len = sizeof(header);
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(descriptors * sizeof(int));
  }
  iovec part{};
  msghdr message{};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostDescriptors * sizeof(int))> control{};
};

}  // namespace

Descriptor::~Descriptor() {
  if (file_ >= 0) ::close(file_);
}
Descriptor::Descriptor(Descriptor&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(file_, other.file_);
  return *this;
}

SharedBlock export_block(const void* memory, int64_t bytes) {
  const CudaRegion::Chunks found = CudaRegion::chunks_of(memory, bytes);
  if (const std::string why = why_not_shared(found.device); !why.empty()) fail_resources("{}", why);
  SharedBlock block{{}, found.offset, bytes};
  for (const CUmemGenericAllocationHandle chunk : found.handles) {
    int file = -1;
    check(driver().mem_export(&file, chunk, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
          "cuMemExportToShareableHandle");
    block.chunks.emplace_back(file);
  }
  return block;
}

void send_block(int socket, const SharedBlock& block) {
  Header header{block.offset, block.bytes, static_cast<int64_t>(block.chunks.size())};
  for (size_t first = 0; first < block.chunks.size(); first += kMostDescriptors) {
    const size_t count = std::min(kMostDescriptors, block.chunks.size() - first);
    Message out(header, count);
    cmsghdr* control = CMSG_FIRSTHDR(&out.message);
    control->cmsg_level = SOL_SOCKET;
    control->cmsg_type = SCM_RIGHTS;
    control->cmsg_len = CMSG_LEN(count * sizeof(int));
    for (size_t i = 0; i < count; ++i) {
      const int file = block.chunks[first + i].get();
      std::memcpy(CMSG_DATA(control) + i * sizeof(int), &file, sizeof(int));
    }
    if (::sendmsg(socket, &out.message, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof(header)))
      fail_socket("sent");
  }
}

SharedBlock receive_block(int socket) {
  SharedBlock block;
  Header header{0, 0, 1};
  while (static_cast<int64_t>(block.chunks.size()) < header.chunks) {
    Message in(header, kMostDescriptors);
    const ssize_t got = ::recvmsg(socket, &in.message, MSG_CMSG_CLOEXEC | MSG_WAITALL);
    if (got == 0) errno = ECONNRESET;
    if (got != static_cast<ssize_t>(sizeof(header))) fail_socket("received");
    const cmsghdr* control = CMSG_FIRSTHDR(&in.message);
    if (control == nullptr || control->cmsg_type != SCM_RIGHTS)
      fail("[cuda] a block of memory came over a socket without its file descriptors");
    const size_t count = (control->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int file = -1;
      std::memcpy(&file, CMSG_DATA(control) + i * sizeof(int), sizeof(int));
      block.chunks.emplace_back(file);
    }
  }
  block.offset = header.offset;
  block.bytes = header.bytes;
  return block;
}

struct ImportedBlock::Mapping {
  explicit Mapping(int device, size_t chunks)
      : gpu(device), bytes(static_cast<int64_t>(chunks) * kCudaChunk), address(reserve_addresses(bytes)) {}
  ~Mapping() {
    const CurrentGpu current(gpu);
    cudaDeviceSynchronize();  // kernels in flight may still use it
    for (size_t i = 0; i < handles.size(); ++i) {
      driver().mem_unmap(address + i * kCudaChunk, kCudaChunk);
      driver().mem_release(handles[i]);
    }
    driver().mem_address_free(address, static_cast<size_t>(bytes));
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  void add(int file) {
    CUmemGenericAllocationHandle chunk = 0;
    // The driver takes the number of the descriptor in the place of a pointer.
    check(driver().mem_import(&chunk, reinterpret_cast<void*>(static_cast<intptr_t>(file)),
                              CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
          "cuMemImportFromShareableHandle");
    const CUdeviceptr at = address + handles.size() * static_cast<size_t>(kCudaChunk);
    const CUresult mapped = driver().mem_map(at, kCudaChunk, 0, chunk, 0);
    if (mapped != CUDA_SUCCESS) driver().mem_release(chunk);
    check(mapped, "cuMemMap");
    handles.push_back(chunk);
    allow_access(at, kCudaChunk, gpu);
  }

  const int gpu;
  const int64_t bytes;
  const CUdeviceptr address;
  std::vector<CUmemGenericAllocationHandle> handles;
};

ImportedBlock::ImportedBlock(Device gpu, const SharedBlock& block) : offset_(block.offset) {
  stream(gpu);  // the driver is there, and the GPU one that Temper supports
  mapping_ = std::make_unique<Mapping>(gpu.index, block.chunks.size());
  for (const Descriptor& chunk : block.chunks) mapping_->add(chunk.get());
}

ImportedBlock::~ImportedBlock() = default;

void* ImportedBlock::data() const { return reinterpret_cast<std::byte*>(mapping_->address) + offset_; }

}  // namespace temper::device
