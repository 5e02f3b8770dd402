#pragma once
#include <string>
#include <vector>

#include "base/error.h"
#include "base/parts/registry.h"

// Libraries of others that rooms open at run time.
namespace temper {

// A library's version, or the sentence that says why it cannot be used.
struct LibraryState {
  bool usable = false;
  std::string text;
};
// By what returns the version, or throws that sentence.
template <class F>
LibraryState probe_library(const F& version) {
  try {
    return {true, version()};
  } catch (const Error& error) {
    return {false, error.what()};
  }
}
using LibraryProbe = LibraryState (*)();  // rooms register theirs by the library's name

// Where CUDA's libraries are usually installed, for when the system's own search does not find them.
inline const std::vector<std::string>& cuda_folders() {
  static const std::vector<std::string> folders{
      "/usr/local/cuda/lib64", "/usr/local/cuda/targets/x86_64-linux/lib", "/usr/lib/x86_64-linux-gnu"};
  return folders;
}

}  // namespace temper
