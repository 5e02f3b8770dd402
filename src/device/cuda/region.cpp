#include "device/cuda/region.h"

#include <algorithm>

#include "base/error.h"

namespace temper::device {
namespace {

std::byte* reserve(int64_t bytes) {
  CUdeviceptr address = 0;
  check(driver().mem_address_reserve(&address, static_cast<size_t>(bytes), 0, 0, 0), "cuMemAddressReserve");
  return reinterpret_cast<std::byte*>(address);
}

CUmemLocation location_of(int device) {
  CUmemLocation location{};
  location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  location.id = device;
  return location;
}

}  // namespace

CudaRegion::CudaRegion(int64_t reserved, int device) : Region(reserve(reserved), reserved), device_(device) {}

CudaRegion::~CudaRegion() {
  unmap_from(0);
  driver().mem_address_free(address(), static_cast<size_t>(reserved_));
}

bool CudaRegion::back(int64_t bytes) {
  while (static_cast<int64_t>(chunks_.size()) * kCudaChunk < bytes) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = location_of(device_);
    CUmemGenericAllocationHandle chunk = 0;
    const CUresult result = driver().mem_create(&chunk, kCudaChunk, &properties, 0);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) return false;
    check(result, "cuMemCreate");
    const CUdeviceptr at = address() + chunks_.size() * static_cast<size_t>(kCudaChunk);
    const CUresult mapped = driver().mem_map(at, kCudaChunk, 0, chunk, 0);
    if (mapped != CUDA_SUCCESS) driver().mem_release(chunk);
    check(mapped, "cuMemMap");
    chunks_.push_back(chunk);
    CUmemAccessDesc access{};
    access.location = location_of(device_);
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    check(driver().mem_set_access(at, kCudaChunk, &access, 1), "cuMemSetAccess");
  }
  held_ = static_cast<int64_t>(chunks_.size()) * kCudaChunk;
  return true;
}

void CudaRegion::unmap_from(size_t chunk) {
  if (chunk >= chunks_.size()) return;
  // Kernels in flight may still use what was freed on the host.
  cudaDeviceSynchronize();
  while (chunks_.size() > chunk) {
    const CUdeviceptr at = address() + (chunks_.size() - 1) * static_cast<size_t>(kCudaChunk);
    driver().mem_unmap(at, kCudaChunk);
    driver().mem_release(chunks_.back());
    chunks_.pop_back();
  }
  held_ = static_cast<int64_t>(chunks_.size()) * kCudaChunk;
}

int64_t CudaRegion::trim() {
  const int64_t before = held_;
  const auto last = blocks_.live().rbegin();
  const int64_t used = last == blocks_.live().rend() ? 0 : last->first + last->second;
  unmap_from(static_cast<size_t>(round_up(used, kCudaChunk) / kCudaChunk));
  return before - held_;
}

void CudaRegion::save() {
  if (live_ == 0) return;
  check(cudaDeviceSynchronize(), "saving a region");
  void* host = nullptr;
  check(cudaMallocHost(&host, static_cast<size_t>(live_)), "cudaMallocHost");
  backup_ = static_cast<std::byte*>(host);
  std::byte* to = backup_;
  for (const auto& [offset, bytes] : blocks_.live()) {
    check(cudaMemcpyAsync(to, base_ + offset, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost),
          "cudaMemcpy");
    to += bytes;
  }
  check(cudaDeviceSynchronize(), "saving a region");
}

void CudaRegion::restore() {
  const std::byte* from = backup_;
  for (const auto& [offset, bytes] : blocks_.live()) {
    check(cudaMemcpyAsync(base_ + offset, from, static_cast<size_t>(bytes), cudaMemcpyHostToDevice),
          "cudaMemcpy");
    from += bytes;
  }
  check(cudaDeviceSynchronize(), "restoring a region");
  cudaFreeHost(backup_);
  backup_ = nullptr;
}

void CudaRegion::withdraw() { unmap_from(0); }

}  // namespace temper::device
