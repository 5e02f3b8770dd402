#include "base/dynamic_library.h"

#include <dlfcn.h>

namespace temper {

DynamicLibrary::DynamicLibrary(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    handle_ = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    name_ = name;
    if (handle_ != nullptr) return;
    if (error_.empty()) error_ = dlerror();
  }
}

void* DynamicLibrary::find(const char* name) const {
  invariant(opened(), "a library that did not open is asked for a function");
  void* found = dlsym(handle_, name);
  if (found == nullptr) fail_resources("[{}] has no function {}; install a newer version", name_, name);
  return found;
}

}  // namespace temper
