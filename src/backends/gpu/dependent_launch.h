#pragma once
#include <type_traits>

#include "backends/gpu/device_code.h"

// Small kernels that follow one another: from compute capability 9.0 on the next one's blocks start while the
// one in front still runs, so that what a launch costs passes meanwhile (PTX ISA 7.8, "griddepcontrol").
//
// Such a kernel calls wait_for_inputs() in every thread before it writes memory of the GPU, or reads what may
// have been written by the kernel in front; all that was asked for earlier is done then. Before that it may
// prepare shared memory, prefetch into the L2 cache, which never gives old values, and read what was there
// before the kernel in front: that one started its followers only after its own wait, so whatever came before
// it is done.
namespace temper::backends {

// Then lets the next kernel's blocks start, which wait for this kernel; earlier they would take the place of
// its own.
__device__ inline void wait_for_inputs() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// By one thread, from a multiple of 16 bytes on; bytes beyond the last 16 are left out.
__device__ inline void prefetch_to_l2(const void* from, int64_t bytes) {
#if __CUDA_ARCH__ >= 900
  if (bytes < 16) return;
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(__cvta_generic_to_global(from)),
               "r"(static_cast<uint32_t>(bytes / 16 * 16))
               : "memory");
#endif
}

inline bool starts_early(Device device) {
  int major = 0;
  device::check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device.index),
                "cudaDeviceGetAttribute");
  return major >= 9;
}

// Launches a kernel that calls wait_for_inputs().
struct DependentLaunch {
  const char* name;  // for errors
  Device device;
  dim3 blocks, threads;
  size_t shared_bytes = 0;

  template <class... Parameters>
  void operator()(void (*kernel)(Parameters...), std::type_identity_t<Parameters>... arguments) const {
    cudaLaunchConfig_t config{};
    config.gridDim = blocks;
    config.blockDim = threads;
    config.dynamicSmemBytes = shared_bytes;
    config.stream = device::stream(device);
    cudaLaunchAttribute early{};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    config.attrs = &early;
    config.numAttrs = starts_early(device) ? 1 : 0;
    device::check(cudaLaunchKernelEx(&config, kernel, std::forward<Parameters>(arguments)...), name);
  }
};

}  // namespace temper::backends
