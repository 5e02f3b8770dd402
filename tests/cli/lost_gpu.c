/* Takes the GPU away from a program that is using it: once the file AWAITED exists, a kernel writes to
 * address 0. Built by device_test.cpp; CUDA's driver loads it (CUDA_INJECTION64_PATH). */
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <unistd.h>

static const char kBroken[] =
    ".version 7.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry broken()\n{\n.reg .b64 %a;\nmov.u64 %a, 0;\nst.global.u32 [%a], 1;\nret;\n}\n";

typedef int (*Retain)(void**, int);
typedef int (*SetCurrent)(void*);
typedef int (*Load)(void**, const void*);
typedef int (*Find)(void**, void*, const char*);
typedef int (*Launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*,
                      void**, void**);

static void* lose(void* driver) {
  void *context, *module, *kernel;
  while (access(AWAITED, F_OK) != 0) usleep(1000);
  if (((Retain)dlsym(driver, "cuDevicePrimaryCtxRetain"))(&context, 0) != 0) return NULL;
  ((SetCurrent)dlsym(driver, "cuCtxSetCurrent"))(context);
  /* It may not be loaded while a graph is captured. */
  while (((Load)dlsym(driver, "cuModuleLoadData"))(&module, kBroken) != 0) usleep(1000);
  ((Find)dlsym(driver, "cuModuleGetFunction"))(&kernel, module, "broken");
  ((Launch)dlsym(driver, "cuLaunchKernel"))(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
  return NULL;
}

int InitializeInjection(void) {
  pthread_t thread;
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  return driver != NULL && pthread_create(&thread, NULL, lose, driver) == 0;
}
