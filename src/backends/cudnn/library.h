#pragma once
#include <mutex>
#include <string>

#include "device/cuda/failures.h"
#include "device/device.h"

struct cudnnContext;

// cuDNN itself: opened when it is first needed, so that the program starts where it is not installed.
namespace temper::backends::cudnn {

struct Library {
  void* opened = nullptr;  // of dlopen; null: `refusal` says why
  std::string refusal;
  std::string version = {};  // "9.19.0"
};
const Library& library();

// cuDNN on one GPU, working on the stream of the thread that began to use it last.
struct Session {
  cudnnContext* handle = nullptr;
  Device device = {};
  int capability = 0;  // 90 for 9.0
  std::mutex mutex;    // a handle serves one thread at a time
};
// Makes the GPU current for the calling thread; an error where the library or the GPU cannot be had.
Session& session(Device device);
// Its handle works on the calling thread's stream from now on. The caller holds the session's mutex.
void use_current_stream(const Session& session);

device::Failure failure_of(int status);  // of a cudnnStatus_t

}  // namespace temper::backends::cudnn
