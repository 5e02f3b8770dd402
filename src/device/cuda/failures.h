#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"

// What went wrong on a GPU, by the numbers that CUDA's runtime and driver share. Libraries on top of them
// (cuBLASLt, cuDNN) sort their own numbers into the same kinds of failure.
namespace temper::device {

enum class Failure {
  kOutOfMemory,   // with less at once it may succeed
  kLost,          // the hardware or its driver failed
  kUnusable,      // there is no such GPU, or driver and GPU do not fit together
  kNoCode,        // the program was not compiled for this GPU
  kUncapturable,  // a call that no CUDA graph can hold; nothing has run
  kPoisoned,      // a defect of ours after which the process can do nothing more on the GPU
  kDefect,        // any other mistake of ours
  kUnexplained,   // of a library: it failed, and does not say why; a defect unless memory is the reason
};

// Of an error number of CUDA's; nothing for a number that the table lacks, which is then a defect.
std::optional<Failure> known_failure(int code);
std::string_view name_of_failure(int code);  // "cudaErrorIllegalAddress"; empty where the table lacks it

// A library that finds no memory to load a kernel or itself says only that it failed, or that it cannot be
// used: where next to nothing of the GPU's memory is free, that is the reason.
Failure failure_with_free(Failure failure, size_t free_bytes);

// kResources for memory, lost and unusable GPUs; kDefect for everything else.
ErrorKind kind_of(Failure failure);
std::string_view advice(Failure failure);  // what to do, without a period

// Throws "what; advice": OutOfMemory, CannotCapture (device/graph.h), or an Error of that kind.
[[noreturn]] void throw_failure(Failure failure, const std::string& what);

// The same of a library's call on the current GPU. Of one that is lost and of one without free memory a
// library only says that it failed: CUDA is asked, too (driver.cpp).
[[noreturn]] void throw_failure_of_library(Failure failure, const char* call, const std::string& what);

}  // namespace temper::device
