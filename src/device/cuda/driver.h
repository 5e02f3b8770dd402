#pragma once
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <string>

// The driver's functions, looked up when they are first needed: the program starts where there is no driver.
namespace temper::device {

struct Driver {
  CUresult (*mem_address_reserve)(CUdeviceptr*, size_t, size_t, CUdeviceptr, unsigned long long) = nullptr;
  CUresult (*mem_address_free)(CUdeviceptr, size_t) = nullptr;
  CUresult (*mem_create)(CUmemGenericAllocationHandle*, size_t, const CUmemAllocationProp*,
                         unsigned long long) = nullptr;
  CUresult (*mem_release)(CUmemGenericAllocationHandle) = nullptr;
  CUresult (*mem_map)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle,
                      unsigned long long) = nullptr;
  CUresult (*mem_unmap)(CUdeviceptr, size_t) = nullptr;
  CUresult (*mem_set_access)(CUdeviceptr, size_t, const CUmemAccessDesc*, size_t) = nullptr;
  CUresult (*mem_export)(void*, CUmemGenericAllocationHandle, CUmemAllocationHandleType,
                         unsigned long long) = nullptr;
  CUresult (*mem_import)(CUmemGenericAllocationHandle*, void*, CUmemAllocationHandleType) = nullptr;
  CUresult (*device_get_attribute)(int*, CUdevice_attribute, CUdevice) = nullptr;
  decltype(&cuTensorMapEncodeTiled) tensor_map_encode_tiled = nullptr;
  CUresult (*get_error_string)(CUresult, const char**) = nullptr;
};

// Throws when there is no driver, it is too old, or no device answers; the message says which.
const Driver& driver();

// What the driver said when it was asked for its GPUs; version 0: there is none.
struct DriverAnswer {
  cudaError_t error = cudaSuccess;
  int version = 0;  // 13000 for CUDA 13.0
  int gpus = 0;
};
// The sentence that refuses a GPU; empty where there is one to use.
std::string why_unusable(const DriverAnswer& answer);
std::string why_unsupported(int gpu, int major, int minor);  // by its compute capability

// Of a call that failed: throws as throw_failure() does (device/cuda/failures.h).
void check(CUresult result, const char* what);
void check(cudaError_t error, const char* what);

}  // namespace temper::device
