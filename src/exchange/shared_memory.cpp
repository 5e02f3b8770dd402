#include "exchange/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/text.h"

namespace temper::exchange {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;

}  // namespace

SharedMemory::SharedMemory(int64_t bytes)
    : file_(::memfd_create("temper-weights", MFD_CLOEXEC | MFD_ALLOW_SEALING)), bytes_(bytes) {
  const int file = file_.get();
  if (file < 0 || ::ftruncate(file, bytes) != 0 || ::fcntl(file, F_ADD_SEALS, kSeals) != 0)
    fail_resources("[weights] {} of shared memory cannot be had: {}", format_bytes(bytes),
                   std::strerror(errno));
  map(PROT_READ | PROT_WRITE);
}

SharedMemory::SharedMemory(device::Descriptor file, int64_t bytes) : file_(std::move(file)), bytes_(bytes) {
  struct stat found {};
  const int seals = ::fcntl(this->file(), F_GET_SEALS);
  const bool fits = ::fstat(this->file(), &found) == 0 && found.st_size >= bytes && bytes > 0;
  if (!fits || seals < 0 || (seals & F_SEAL_SHRINK) == 0)
    fail("[weights] the memory to read from is {}, expected {} that cannot shrink",
         fits ? "not sealed" : format_bytes(found.st_size), format_bytes(bytes));
  map(PROT_READ);
}

void SharedMemory::map(int protection) {
  void* const mapped = ::mmap(nullptr, static_cast<size_t>(bytes_), protection, MAP_SHARED, file(), 0);
  if (mapped == MAP_FAILED)
    fail_resources("[weights] {} of shared memory cannot be mapped: {}", format_bytes(bytes_),
                   std::strerror(errno));
  data_ = static_cast<std::byte*>(mapped);
}

SharedMemory::~SharedMemory() { ::munmap(data_, static_cast<size_t>(bytes_)); }

}  // namespace temper::exchange
