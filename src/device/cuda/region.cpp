#include "device/cuda/region.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <set>

#include "base/error.h"
#include "device/cuda/events.h"
#include "device/cuda/stream.h"

namespace temper::device {
namespace {

// Of all regions, and of what is mapped in them.
std::mutex& regions_mutex() {
  static std::mutex& mutex = *new std::mutex;
  return mutex;
}
std::set<const CudaRegion*>& all_regions() {
  static auto& all = *new std::set<const CudaRegion*>;
  return all;
}

CUmemLocation location_of(int device) {
  CUmemLocation location{};
  location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  location.id = device;
  return location;
}

// Set where a driver refused to make memory that can be shared: containers and some hypervisors do.
std::array<std::atomic<bool>, kMaxGpus>& refused_sharing() {
  static std::array<std::atomic<bool>, kMaxGpus> all{};
  return all;
}

bool wants_sharing(int gpu) {
  int supported = 0;
  driver().device_get_attribute(&supported, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
                                gpu);
  return supported != 0 && !refused_sharing().at(static_cast<size_t>(gpu));
}

}  // namespace

CUdeviceptr reserve_addresses(int64_t bytes) {
  CUdeviceptr address = 0;
  check(driver().mem_address_reserve(&address, static_cast<size_t>(bytes), 0, 0, 0), "cuMemAddressReserve");
  return address;
}

bool make_chunk(int gpu, int64_t bytes, CUmemGenericAllocationHandle* chunk) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = location_of(gpu);
  if (wants_sharing(gpu)) {
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    const CUresult result = driver().mem_create(chunk, static_cast<size_t>(bytes), &properties, 0);
    if (result == CUDA_SUCCESS) return true;
    if (result == CUDA_ERROR_OUT_OF_MEMORY) return false;
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
    refused_sharing().at(static_cast<size_t>(gpu)) = true;
  }
  const CUresult result = driver().mem_create(chunk, static_cast<size_t>(bytes), &properties, 0);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) return false;
  check(result, "cuMemCreate");
  return true;
}

std::string why_not_shared(int gpu) {
  if (wants_sharing(gpu)) return "";
  return fmt::format("[cuda] the driver does not let processes share memory of GPU {} by file descriptors{}",
                     gpu,
                     refused_sharing().at(static_cast<size_t>(gpu))
                         ? ", although it says so: is this a container or a virtual machine?"
                         : "");
}

void allow_access(CUdeviceptr address, int64_t bytes, int gpu) {
  CUmemAccessDesc access{};
  access.location = location_of(gpu);
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  check(driver().mem_set_access(address, static_cast<size_t>(bytes), &access, 1), "cuMemSetAccess");
}

CudaRegion::CudaRegion(int64_t reserved, int device)
    : Region(reinterpret_cast<std::byte*>(reserve_addresses(reserved)), reserved, &streams(device)),
      device_(device) {
  const std::lock_guard lock(regions_mutex());
  all_regions().insert(this);
}

CudaRegion::~CudaRegion() {
  {
    const std::lock_guard lock(regions_mutex());
    all_regions().erase(this);
  }
  unmap_from(0);
  driver().mem_address_free(address(), static_cast<size_t>(reserved_));
}

bool CudaRegion::back(int64_t /*begin*/, int64_t end) {
  const size_t before = chunks_.size();
  const auto missing = [&] { return static_cast<int64_t>(chunks_.size()) * kCudaChunk < end; };
  try {
    while (missing() && map_chunk()) {
    }
    // Of many chunks at once: each call waits for the driver.
    if (chunks_.size() > before)
      allow_access(chunk_at(before), static_cast<int64_t>(chunks_.size() - before) * kCudaChunk, device_);
  } catch (...) {
    unmap_from(before);  // no block is in them yet
    throw;
  }
  held_ = static_cast<int64_t>(chunks_.size()) * kCudaChunk;
  return !missing();
}

bool CudaRegion::map_chunk() {
  CUmemGenericAllocationHandle chunk = 0;
  if (!make_chunk(device_, kCudaChunk, &chunk)) return false;
  const std::lock_guard lock(regions_mutex());
  const CUresult mapped = driver().mem_map(chunk_at(chunks_.size()), kCudaChunk, 0, chunk, 0);
  if (mapped != CUDA_SUCCESS) driver().mem_release(chunk);
  check(mapped, "cuMemMap");
  chunks_.push_back(chunk);
  return true;
}

void CudaRegion::unmap_from(size_t chunk) {
  if (chunk >= chunks_.size()) return;
  // Kernels in flight, on any of this GPU's streams, may still use what was freed on the host.
  const CurrentGpu gpu(device_);
  cudaDeviceSynchronize();
  const std::lock_guard lock(regions_mutex());
  while (chunks_.size() > chunk) {
    driver().mem_unmap(chunk_at(chunks_.size() - 1), kCudaChunk);
    driver().mem_release(chunks_.back());
    chunks_.pop_back();
  }
  held_ = static_cast<int64_t>(chunks_.size()) * kCudaChunk;
}

void CudaRegion::give_up() {
  const auto last = blocks_.live().rbegin();
  const int64_t used = last == blocks_.live().rend() ? 0 : last->first + last->second;
  unmap_from(static_cast<size_t>(round_up(used, kCudaChunk) / kCudaChunk));
}

void CudaRegion::save(const Blocks& blocks, int64_t all) {
  if (all == 0) return;
  const CurrentGpu gpu(device_);
  check(cudaDeviceSynchronize(), "saving a region");
  backup_.hold(all);
  copy(blocks, cudaMemcpyDeviceToHost);
}

void CudaRegion::restore(const Blocks& blocks) {
  const CurrentGpu gpu(device_);
  copy(blocks, cudaMemcpyHostToDevice);
}

// Between the blocks and the backup, where they lie one after the other.
void CudaRegion::copy(const Blocks& blocks, cudaMemcpyKind kind) const {
  int64_t begin = 0;
  for (const auto& [offset, bytes] : blocks) {
    backup_.for_parts(begin, bytes, [&, at = base_ + offset](std::byte* kept, int64_t done, int64_t size) {
      const bool saves = kind == cudaMemcpyDeviceToHost;
      check(cudaMemcpyAsync(saves ? kept : at + done, saves ? at + done : kept, static_cast<size_t>(size),
                            kind),
            "cudaMemcpyAsync");
    });
    begin += bytes;
  }
  check(cudaDeviceSynchronize(), "copying a region's contents");
}

void CudaRegion::withdraw() { unmap_from(0); }

CudaRegion::Chunks CudaRegion::chunks_of(const void* memory, int64_t bytes) {
  const std::lock_guard lock(regions_mutex());
  for (const CudaRegion* region : all_regions()) {
    const int64_t offset = static_cast<const std::byte*>(memory) - region->base_;
    if (offset < 0 || offset >= region->reserved_) continue;
    const auto first = static_cast<size_t>(offset / kCudaChunk),
               end = static_cast<size_t>(round_up(offset + bytes, kCudaChunk) / kCudaChunk);
    invariant(end <= region->chunks_.size(), "chunks of memory that no block has");
    const auto begin = region->chunks_.begin();
    return {region->device_,
            {begin + static_cast<std::ptrdiff_t>(first), begin + static_cast<std::ptrdiff_t>(end)},
            offset % kCudaChunk};
  }
  fail(
      "[cuda] this memory is in no region of a GPU's pool; with TEMPER_GPU_POOL=separate none can be shared");
}

}  // namespace temper::device
