/* NVIDIA's driver as far as CUDA's runtime asks it before it gives up: ANSWER to cuInit, VERSION as its own. Built by
 * device_test.cpp, which puts it in front of what is installed. */
#include <stdint.h>
#include <string.h>

int cuDriverGetVersion(int* version) {
  *version = VERSION;
  return 0;
}

int cuInit(unsigned flags) {
  (void)flags;
  return ANSWER;
}

int cuDeviceGetCount(int* count) {
  *count = 0;
  return 0;
}

static int unknown(void) { return 999; }

int cuGetProcAddress_v2(const char* name, void** function, int version, uint64_t flags, int* result) {
  (void)version;
  (void)flags;
  if (result != NULL) *result = 0;
  if (strcmp(name, "cuDriverGetVersion") == 0)
    *function = (void*)cuDriverGetVersion;
  else if (strcmp(name, "cuInit") == 0)
    *function = (void*)cuInit;
  else if (strcmp(name, "cuDeviceGetCount") == 0)
    *function = (void*)cuDeviceGetCount;
  else if (strcmp(name, "cuGetProcAddress") == 0)
    *function = (void*)cuGetProcAddress_v2;
  else
    *function = (void*)unknown;
  return 0;
}
