#pragma once
#include <mutex>
#include <string>

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

// cuDNN on one GPU, working on the GPU's one stream.
struct Session {
  cudnnContext* handle = nullptr;
  int capability = 0;  // 90 for 9.0
  std::mutex mutex;    // a handle serves one thread at a time
};
// Makes the GPU current for the calling thread; an error where the library or the GPU cannot be had.
Session& session(Device device);

}  // namespace temper::backends::cudnn
