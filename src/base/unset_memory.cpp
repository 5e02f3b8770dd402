#include "base/unset_memory.h"

#include <sys/mman.h>

#include <cstdlib>

#include "base/error.h"
#include "base/text.h"

namespace temper {

void FreeMemory::operator()(void* memory) const { std::free(memory); }

void* unset_bytes(int64_t bytes, const char* purpose) {
  constexpr int64_t kHugePage = int64_t{2} << 20, kCacheLine = 64;
  const bool large = bytes >= kHugePage;
  void* memory = nullptr;
  if (::posix_memalign(&memory, static_cast<size_t>(large ? kHugePage : kCacheLine),
                       static_cast<size_t>(bytes)) != 0)
    throw OutOfMemory(fmt::format("no memory for {}, which needs {}", purpose, format_bytes(bytes)));
  if (large) ::madvise(memory, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  return memory;
}

}  // namespace temper
