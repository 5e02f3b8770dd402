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
  CUresult (*get_error_string)(CUresult, const char**) = nullptr;
};

// Throws when there is no driver, it is too old, or no device answers; the message says which.
const Driver& driver();

void check(CUresult result, const char* what);
void check(cudaError_t error, const char* what);

}  // namespace temper::device
